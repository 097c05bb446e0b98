/** Why a fact is predicted: a picture of the paths, and their patterns, which can be left out. */

import { announce, bar, h, name, newId } from "./dom.js";
import { fileText, picture } from "./evidence.js";
import { arrow, entityLink, explainAddress, load, pattern, problem, save } from "./parts.js";
import { address, go } from "./router.js";
import { count, number, percent, roundPercent, score, signed } from "./text.js";

const PATTERNS = 8; // in the picture, those with the largest effects,
const FEW = 4; // and two paths of each if there are no more than this

/** @param {import("./parts.js").Context} ctx */
export function explain(ctx) {
  const [head, relation, tail] = ["head", "relation", "tail"].map((key) => ctx.params.get(key) ?? "");
  const asked = ctx.params.get("asked") ?? "tail";
  const query = { head, relation, tail, asked };
  const box = h("div");
  ctx.main.append(box);
  return load(box, ctx, "Looking for evidence.", (signal) => ctx.api.get("explain", query, signal), (found) => drawn(ctx, query, found));
}

function drawn(ctx, query, found) {
  const label = (exact) => found.labels?.[exact] ?? exact;
  const left = new Set(ctx.params.getAll("without"));
  const keyOf = (item) => JSON.stringify(item.relations ?? item.steps);
  const bridges = found.patterns.length ? [] : found.bridges;
  const items = [...found.patterns, ...bridges];
  for (const key of left) if (!items.some((item) => keyOf(item) === key)) left.delete(key);

  const strongest = [...items].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, PATTERNS);
  const paths = strongest.flatMap((item) => (item.instances ?? [item.steps]).slice(0, strongest.length > FEW ? 1 : 2).map((steps) => ({ steps, item })));
  const what = () => ({ head: found.head, tail: found.tail, label, paths: paths.map(({ steps, item }) => ({ steps, effect: item.effect, leftOut: left.has(keyOf(item)) })) });
  const canvas = h("div", { class: "scroll picture", tabindex: "0", role: "region", "aria-label": "Picture of the evidence" });
  const draw = () => {
    const svg = picture(what());
    svg.style.setProperty("--own-width", `${svg.getAttribute("width")}px`);
    canvas.replaceChildren(svg);
  };
  const result = h("div", { class: "result", role: "status", "aria-live": "polite" });
  let asking = new AbortController();

  function turn(key, out) {
    if (out) left.add(key);
    else left.delete(key);
    go(address("explain", { ...query, asked: query.asked === "tail" ? null : query.asked, without: [...left] }), { quiet: true });
    draw();
    rescore();
  }

  async function rescore() {
    asking.abort();
    const own = (asking = new AbortController());
    ctx.signal.addEventListener("abort", () => own.abort(), { once: true });
    if (!left.size) return result.replaceChildren(h("span", { class: "hint" }, "Leave out a pattern to see how the score and the rank change."));
    result.setAttribute("aria-busy", "true");
    const gone = items.filter((item) => left.has(keyOf(item)));
    const without = { patterns: gone.flatMap((i) => (i.relations ? [i.relations] : [])), paths: gone.flatMap((i) => (i.relations ? [] : [i.steps])) };
    try {
      const now = await ctx.api.post("explain", { ...query, without }, own.signal);
      if (own.signal.aborted) return undefined;
      const change = (title, before, after) => h("span", { class: "change" }, `${title} `, h("span", { class: "before" }, before), " → ", h("strong", null, after));
      result.replaceChildren(h("span", null, `Without ${count(gone.length, items[0].relations ? "pattern" : "path")}: `), change("score", score(now.score_before), score(now.score)), change("rank", number(now.rank_before), number(now.rank)),
        h("button", { type: "button", class: "quiet", onclick: reset }, "Use all again"));
    } catch (error) {
      if (!own.signal.aborted) result.replaceChildren(problem(error, rescore));
    }
    result.removeAttribute("aria-busy");
    return undefined;
  }

  function reset() {
    left.clear();
    for (const input of document.querySelectorAll("#patterns input")) input.checked = false;
    turn("", false);
  }

  const most = Math.max(...items.map((i) => Math.abs(i.effect)), 1e-9);
  const list = h("ol", { class: "patterns", id: "patterns" }, items.map((item, i) => entry(item, i === 0, found, label, most, left.has(keyOf(item)), (out) => turn(keyOf(item), out))));
  if (items.length) {
    draw();
    rescore();
  }
  const words = [label(found.head), found.relation_label ?? label(found.relation), label(found.tail)];
  document.title = `${words.join(" ")} · ${ctx.graph.name} · PathE`;
  announce(`Explanation of ${words.join(" ")}: ${count(found.patterns.length, "pattern")}`);
  const file = `${words.join(" ")}`.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  const svg = () => save(new Blob([fileText(what())], { type: "image/svg+xml" }), `${file}.svg`);
  const json = () => save(new Blob([JSON.stringify(found, null, 1)], { type: "application/json" }), `${file}.json`);
  return [
    h("h1", { class: "fact" }, name(words[0]), " ", arrow(words[1]), " ", name(words[2])),
    figures(found, query),
    h("div", { class: "actions" }, links(query, words)),
    items.length
      ? [h("section", { "aria-labelledby": "evidence" }, h("h2", { id: "evidence" }, "Paths from head to tail"), canvas, legend(items.length - strongest.length),
          h("p", { class: "exports" }, "Download: ", h("button", { type: "button", class: "link", onclick: svg, "data-format": "svg" }, "SVG"), " ", h("button", { type: "button", class: "link", onclick: json, "data-format": "json" }, "JSON"))),
        h("section", { "aria-labelledby": "why" }, h("h2", { id: "why" }, found.patterns.length ? "Patterns" : "Paths"), h("p", { class: "hint" }, "Paths that follow the same relations form a pattern. The effect is what the score loses without them."), result, list)]
      : h("p", null, "No path connects head and tail. The score comes from what each of them is like."),
    found.paths.length > 0 && single(found, label),
  ];
}

function figures(found, query) {
  const between = found.bridged ? `, ${signed(found.bridged)} from the paths between them` : "";
  const part = { head: "heads", relation: "relations", tail: "tails" }[query.asked];
  const item = (title, value) => h("div", null, h("dt", null, title), h("dd", null, value));
  return [
    h("dl", { class: "figures" }, item(`Rank among ${part}`, number(found.rank)), item("Probability", percent(found.probability)), item("Score", score(found.score))),
    h("p", { class: "hint" }, `The score: ${score(found.alone)} without any path${between}.`)];
}

function links(query, words) {
  const { head, relation, tail, asked } = query;
  const other = asked === "head" ? "tail" : "head";
  return [
    h("a", { class: "button", href: address("ask", { ...query, asked: null, [asked]: null }) }, "Other answers"),
    h("a", { class: "button", href: explainAddress({ head, relation, tail }, other) }, `Rank among ${other}s`),
    h("a", { class: "button", href: address("whatif", { head, relation, tail }) }, "Change this fact"),
    h("span", { class: "hint" }, "Cards: ", entityLink(head, words[0]), ", ", entityLink(tail, words[2]))];
}

const legend = (more) => h("p", { class: "legend hint" },
  h("span", null, h("span", { class: "sample for", "aria-hidden": "true" }), "speaks for it"), h("span", null, h("span", { class: "sample against", "aria-hidden": "true" }), "speaks against it (dashed)"),
  h("span", null, h("span", { class: "sample faint", "aria-hidden": "true" }), "left out (dotted)"), h("span", null, `Wider lines have a larger effect.${more > 0 ? ` The ${PATTERNS} strongest patterns are drawn.` : ""}`));

function entry(item, first, found, label, most, out, turned) {
  const against = item.effect < 0;
  const id = newId("out");
  const input = h("input", { type: "checkbox", id, checked: out, onchange: () => turned(input.checked) });
  const said = item.relations ? item.words ?? item.relations.join(" ") : path(item.steps, found.head, label).textContent;
  const sample = item.instances?.[0] ?? item.steps;
  return h("li", { class: against ? "is-against" : "" },
    h("div", { class: "pattern-head" },
      h("span", { class: "pattern" }, item.relations ? pattern(item.relations, item.labels) : path(item.steps, found.head, label), against && h("span", { class: "mark against" }, "counter-evidence")),
      h("span", { class: "check" }, input, h("label", { for: id }, "Leave out", h("span", { class: "unseen" }, ` ${said}`)))),
    h("div", { class: "effect" }, h("span", { class: "figure" }, signed(item.effect)), bar(Math.abs(item.effect) / most, against ? "against" : "for")),
    item.relations && h("p", { class: "hint" }, `${item.complete ? "" : "at least "}${count(item.n_paths, "path")}; `, `${holds(item)}; adds ${signed(item.added)} ${first ? "by itself" : "to those above"}.`),
    item.relations && sample && h("p", { class: "example" }, path(sample, found.head, label)));
}

const holds = (p) => (p.confidence === null ? "no other pair to compare" : `holds for ${number(p.support)} of ${count(p.connected, "other pair")} (${roundPercent(p.confidence)})`);

/** A path in words, from the head on if it begins or ends there. */
function path(steps, start, label) {
  const first = steps[0];
  const last = steps.at(-1);
  const turned = first[0] !== start && first[2] !== start && (last[0] === start || last[2] === start);
  let at = turned || first[0] === start || first[2] === start ? start : first[0];
  const parts = [entityLink(at, label(at))];
  for (const [head, relation, tail] of turned ? [...steps].reverse() : steps) {
    const back = head !== at;
    at = back ? head : tail;
    parts.push(" ", arrow(label(relation), back), " ", entityLink(at, label(at)));
  }
  return h("span", { class: "fact" }, parts);
}

/** Paths of either entity by itself, which models without bridges rely on. */
function single(found, label) {
  const shown = found.paths.slice(0, 10).map((p) => h("li", null, `${signed(p.effect)} ${p.of}: `, p.steps.length ? path(p.steps, p.of === "head" ? found.head : found.tail, label) : "by itself"));
  return h("details", null, h("summary", null, "Paths of either entity"), h("ul", { class: "plain" }, shown));
}
