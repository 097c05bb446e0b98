/** Pieces that several views use. */

import { hasToken, keepToken, request } from "./api.js";
import { combobox } from "./combobox.js";
import { announce, bar, h, name, newId } from "./dom.js";
import { address, go } from "./router.js";
import { count, percent } from "./text.js";

/**
 * What a view gets: the graph, the address's parameters, calls of the API, and where to draw.
 * @typedef {{graph: any, params: URLSearchParams, api: ReturnType<import("./api.js").client>,
 *   signal: AbortSignal, main: HTMLElement, forget: () => void}} Context
 */

/**
 * Fills a box with a result: a note while it loads, then the result, or what went wrong.
 * @template T
 * @param {HTMLElement} box
 * @param {Context} ctx
 * @param {string} note
 * @param {(signal: AbortSignal) => Promise<T>} fetch
 * @param {(result: T) => unknown} draw returns what goes into the box
 * @param {{slow?: boolean}} options slow results show the time so far and can be stopped
 */
export async function load(box, ctx, note, fetch, draw, { slow = false } = {}) {
  const stop = new AbortController();
  const seconds = h("span", { "aria-hidden": "true" });
  const begun = Date.now();
  const timer = slow && setInterval(() => (seconds.textContent = ` ${Math.round((Date.now() - begun) / 1000)} s so far. `), 1000);
  const again = () => load(box, ctx, note, fetch, draw, { slow });
  const end = () => stop.abort();
  const button = slow && h("button", { type: "button", class: "quiet", onclick: end }, "Stop");
  box.setAttribute("aria-busy", "true");
  box.replaceChildren(h("p", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), `${note} `, seconds, button));
  try {
    ctx.signal.addEventListener("abort", end);
    const result = await fetch(stop.signal);
    const drawn = [draw(result)].flat(Infinity).filter(Boolean);
    if (!ctx.signal.aborted) box.replaceChildren(...drawn);
    return result;
  } catch (error) {
    if (ctx.signal.aborted) return undefined;
    box.replaceChildren(problem(error.name === "AbortError" ? new Error("Stopped.") : error, again));
    return undefined;
  } finally {
    ctx.signal.removeEventListener("abort", end);
    clearInterval(timer);
    box.removeAttribute("aria-busy");
  }
}

/** What went wrong, as a sentence, with a button that tries again. */
export function problem(error, again) {
  if (error.status === 401) return tokenForm(again);
  if (!(error instanceof Error && "status" in error) && error.message !== "Stopped.") console.error(error);
  const retry = h("button", { type: "button", onclick: again }, "Try again");
  return h("div", { class: "problem", role: "alert" }, h("p", null, error.message), retry);
}

function tokenForm(again) {
  const id = newId("token");
  const input = h("input", { id, type: "password", autocomplete: "off", required: true });
  const sent = (event) => {
    event.preventDefault();
    keepToken(input.value.trim());
    again();
  };
  const wrong = hasToken() ? "The server didn't accept this token." : "This server asks for a token.";
  return h("form", { class: "problem", onsubmit: sent },
    h("p", { role: "alert" }, `${wrong} Whoever started it can tell you the token.`),
    h("label", { for: id }, "Token"), input, h("button", { type: "submit", class: "main" }, "Continue"));
}

// Links

export const entityLink = (exact, label = exact) => h("a", { href: address("entity", { name: exact }) }, name(label));

/** A fact as text, with links to its entities. */
export function fact(f) {
  return h("span", { class: "fact" }, entityLink(f.head, f.head_label ?? f.head), " ",
    arrow(f.relation_label ?? f.relation), " ", entityLink(f.tail, f.tail_label ?? f.tail));
}

export const arrow = (label, back = false) =>
  h("span", { class: "relation" }, back ? "←\u00a0" : "—\u00a0", name(label), back ? "\u00a0—" : "\u00a0→");

/** The relations of a pattern, each with an arrow; ^ marks one that is followed backwards. */
export function pattern(relations, labels = relations) {
  return relations.flatMap((relation, i) => {
    const back = relation.startsWith("^");
    const label = labels[i] ?? relation;
    const between = i > 0 && h("span", { class: "joint", "aria-hidden": "true" }, "○ ");
    return [between, arrow(back && label.startsWith("^") ? label.slice(1) : label, back), " "];
  });
}

export const explainAddress = (f, asked = null) =>
  address("explain", { head: f.head, relation: f.relation, tail: f.tail, asked: asked === "tail" ? null : asked });

// Fields

export function entityField(ctx, options) {
  const source = async (q, signal) =>
    (await ctx.api.get("entities", { q, limit: 12, type: options.type?.() }, signal)).entities.map((e) => ({
      value: e.name, label: e.label, detail: [e.types.slice(0, 2).join(", "), count(e.facts, "fact")].filter(Boolean).join(" · "),
    }));
  return combobox({ ...options, source });
}

export function relationField(ctx, options) {
  const source = async (q, signal) =>
    (await ctx.api.get("relations", { q, limit: 12 }, signal)).relations.map((r) => ({ value: r.name, label: r.label, detail: count(r.facts, "fact") }));
  return combobox({ ...options, source });
}

export const relationLabel = (ctx, exact) => ctx.graph.relations_list.find((r) => r.name === exact)?.label ?? exact ?? "";

export function typeChoice(ctx, value, onchange, label = "Type") {
  if (!ctx.graph.types.length) return null;
  const id = newId("type");
  const options = ctx.graph.types.map((t) => h("option", { value: t.name, selected: t.name === value }, `${t.label} (${t.entities})`));
  const select = h("select", { id, "data-key": label, onchange: () => onchange?.(select.value) }, h("option", { value: "" }, "Any type"), options);
  return h("div", { class: "field" }, h("label", { for: id }, label), select);
}

export function check(label, checked, onchange) {
  const id = newId("check");
  const input = h("input", { type: "checkbox", id, checked, "data-key": label, onchange: () => onchange(input.checked) });
  return h("div", { class: "check" }, input, h("label", { for: id }, label));
}

// Downloads

/** Links that download a list. */
export function exports(ctx, path, query, formats = ["json", "csv", "ttl"]) {
  const names = { json: "JSON", csv: "CSV", ttl: "Turtle" };
  const links = formats.map((format) => {
    const link = h("a", { download: `${path}.${format}`, "data-format": format }, names[format]);
    ctx.api.address(path, { ...query, format }).then((where) => {
      link.href = where;
      link.onclick = async (event) => {
        if (!hasToken()) return; // the browser downloads it by itself
        event.preventDefault();
        save(await (await request(where)).blob(), link.download);
      };
    }).catch(() => link.remove());
    return [link, " "];
  });
  return h("p", { class: "exports" }, "Download: ", links);
}

/** @param {Blob} blob */
export function save(blob, filename) {
  const link = h("a", { href: URL.createObjectURL(blob), download: filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Lists of facts

/** The facts that the graph probably lacks, with bars and reasons. */
export function missingFacts(box, ctx, query) {
  const note = "Looking for facts that the graph lacks. The first search takes longest.";
  return load(box, ctx, note, (signal) => ctx.api.get("missing", query, signal), ({ triples }) => {
    announce(count(triples.length, "missing fact"));
    if (!triples.length) return h("p", null, "No missing facts were found.");
    const rows = triples.map((t) => h("li", { class: "row" },
      h("span", { class: "rank" }, t.rank), h("span", { class: "what" }, fact(t)), bar(t.probability, "new"),
      h("span", { class: "share" }, percent(t.probability)),
      h("span", { class: "more" }, t.reason && h("span", { class: "why" }, t.reason, " "), h("a", { href: explainAddress(t) }, "Explain", h("span", { class: "unseen" }, ` ${t.head_label} ${t.relation_label} ${t.tail_label}`)))));
    return [h("ol", { class: "rows" }, rows), exports(ctx, "missing", query)];
  }, { slow: true });
}

/** The facts that look wrong, given the rest of the graph. */
export function suspiciousFacts(box, ctx, query) {
  const note = "Judging each fact without itself.";
  return load(box, ctx, note, (signal) => ctx.api.get("suspicious", query, signal), ({ facts }) => {
    announce(count(facts.length, "suspicious fact"));
    if (!facts.length) return h("p", null, "There are no facts to judge.");
    const rows = facts.map((f) => h("li", { class: "row" },
      h("span", { class: "rank" }, f.rank), h("span", { class: "what" }, fact(f)), bar(f.probability, "known"),
      h("span", { class: "share" }, percent(f.probability)),
      h("span", { class: "more" },
        f.expected.length > 0 && h("span", { class: "why" }, "More likely: ", f.expected.slice(0, 3).map((e, i) => [i > 0 && ", ", entityLink(e, f.expected_labels?.[i] ?? e)]), ". "),
        h("a", { href: explainAddress(f) }, "Explain", h("span", { class: "unseen" }, ` ${f.head_label} ${f.relation_label} ${f.tail_label}`)), " ",
        h("a", { href: address("whatif", { head: f.head, relation: f.relation, tail: f.tail }) }, "What if it were removed?"))));
    return [h("p", { class: "hint" }, "The probability that each fact is true, given all other facts; the least probable come first."), h("ol", { class: "rows" }, rows), exports(ctx, "suspicious", query)];
  }, { slow: true });
}

export function similarEntities(box, ctx, entity) {
  const query = { entity, k: 10 };
  return load(box, ctx, "Comparing entities.", (signal) => ctx.api.get("similar", query, signal), ({ entities }) => {
    announce(count(entities.length, "similar entity", "similar entities"));
    const rows = entities.map((e) => h("li", { class: "row" }, h("span", { class: "rank" }, e.rank),
      h("span", { class: "what" }, entityLink(e.name, e.label)), bar(e.similarity, "known"), h("span", { class: "share" }, e.similarity.toFixed(2))));
    return [h("p", { class: "hint" }, "By the cosine of their vectors: 1 is the same."), h("ol", { class: "rows" }, rows), exports(ctx, "similar", query, ["json", "csv"])];
  });
}

/** A form that changes some parameters of the view. */
export function filters(fields, onsubmit, action) {
  const sent = (event) => {
    event.preventDefault();
    onsubmit();
  };
  return h("form", { class: "fields", onsubmit: sent }, fields, h("button", { type: "submit", class: "main" }, action));
}

export const again = (view, wanted) => go(address(view, wanted));
