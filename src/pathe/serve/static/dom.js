/** Builds elements. Text only ever becomes text nodes, so names can't turn into markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} element
 * @param {Record<string, unknown>} props attributes; `on...` are listeners; false and null are left out
 * @param {unknown[]} children
 */
function fill(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

export function append(element, ...children) {
  const wanted = children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
  element.append(...wanted.map((c) => (c instanceof Node ? c : String(c))));
}

/** @returns {HTMLElement} */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** @returns {SVGElement} */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** A name of the graph: isolated, because its writing direction may differ from the text around it. */
export const name = (text) => h("bdi", null, text);

/** Tells screen readers what changed. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 50);
}

/** A bar for a share between 0 and 1; the number is given as text next to it. */
export function bar(share, kind = "") {
  const inner = h("span", { class: `bar-fill ${kind}` });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "bar-track", "aria-hidden": "true" }, inner);
}

let last = 0;
export const newId = (prefix) => `${prefix}-${++last}`;
