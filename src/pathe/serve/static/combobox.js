/** A text field with suggestions, after the combobox pattern of the ARIA practices. */

import { announce, h, name, newId } from "./dom.js";
import { count } from "./text.js";

const WAIT = 150; // milliseconds after the last key

/**
 * @typedef {{value: string, label: string, detail?: string}} Choice
 * @param {object} options
 * @param {string} options.label
 * @param {(text: string, signal: AbortSignal) => Promise<Choice[]>} options.source
 * @param {string} [options.value] the exact name at first
 * @param {string} [options.text] how it is shown at first
 * @param {string} [options.placeholder]
 * @param {boolean} [options.hideLabel]
 * @param {(choice: Choice) => void} [options.onpick]
 * @param {string} [options.key] tells fields apart in tests and style
 */
export function combobox({ label, source, value = "", text = value, placeholder, hideLabel, onpick, key }) {
  const id = newId("combo");
  const list = h("ul", { class: "options", role: "listbox", id: `${id}-list`, "aria-label": label, hidden: true });
  const input = h("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder, "data-field": key,
    "aria-expanded": "false", "aria-autocomplete": "list", "aria-controls": list.id,
    oninput: () => later(), onkeydown: pressed, onfocus: () => later(0), onblur: close, onclick: () => later(0),
  });
  input.value = text;
  let chosen = { value, label: text };
  /** @type {Choice[]} */
  let choices = [];
  let active = -1;
  let timer = 0;
  let asked = new AbortController();

  function later(wait = WAIT) {
    clearTimeout(timer);
    if (wait === 0 && !list.hidden) return;
    asked.abort(); // an older answer must not replace a newer one
    const own = (asked = new AbortController());
    timer = setTimeout(async () => {
      // A complete name in the field shouldn't hide the other choices.
      const typed = input.value === chosen.label && chosen.value ? "" : input.value.trim();
      try {
        const found = await source(typed, own.signal);
        if (!own.signal.aborted && document.activeElement === input) open(found, wait !== 0);
      } catch {
        if (!own.signal.aborted) close(); // suggestions are a help only: the field works without them
      }
    }, wait);
  }

  function open(found, tell) {
    choices = found;
    list.replaceChildren(...found.map((choice, i) => {
      const own = { role: "option", id: `${id}-${i}`, "aria-selected": "false", onmousedown: (e) => (e.preventDefault(), pick(i)) };
      return h("li", own, name(choice.label), choice.detail && h("span", { class: "detail" }, choice.detail));
    }));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    activate(-1);
    if (tell) announce(found.length ? count(found.length, "suggestion") : "No suggestions");
  }

  function close() {
    clearTimeout(timer);
    asked.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    activate(-1);
  }

  function activate(i) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = i;
    const option = list.children[i];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", option.id);
    } else input.removeAttribute("aria-activedescendant");
  }

  function pick(i) {
    chosen = choices[i];
    input.value = chosen.label;
    close();
    onpick?.(chosen);
  }

  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) later(0);
      else activate((active + step + (active < 0 && step < 0 ? 1 : 0) + choices.length) % choices.length);
    } else if (event.key === "Enter" && !list.hidden && active >= 0) {
      event.preventDefault();
      pick(active);
    } else if (event.key === "Enter") close();
    else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      else event.preventDefault();
      close();
    } else if (event.key === "Tab" && !list.hidden && active >= 0) pick(active);
  }

  /** The exact name of a picked choice, or what was typed. */
  function current() {
    const typed = input.value.trim();
    if (typed === chosen.label) return chosen.value;
    const same = choices.find((c) => c.label.toLowerCase() === typed.toLowerCase());
    return same ? same.value : typed;
  }

  /** Shows another label for an exact name. */
  function show(exact, text) {
    chosen = { value: exact, label: text };
    if (document.activeElement !== input) input.value = text;
  }

  const shown = h("label", { for: id, class: hideLabel ? "unseen" : null }, label);
  return { element: h("div", { class: "combo" }, shown, input, list), input, value: current, show };
}
