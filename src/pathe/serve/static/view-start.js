/** The first view and the results of a search. */

import { announce, h, name } from "./dom.js";
import { entityLink, load } from "./parts.js";
import { address } from "./router.js";
import { count, number } from "./text.js";

const EXAMPLES = 6;

/** @param {import("./parts.js").Context} ctx */
export function start(ctx) {
  const { graph } = ctx;
  ctx.main.append(
    h("h1", null, name(graph.name)),
    h("p", { class: "lead" }, `A graph with ${count(graph.triples, "fact")} about ${count(graph.entities, "entity", "entities")}, with ${count(graph.relations, "relation")}. Ask what it lacks, and see why an answer is given.`));
  const questions = h("div");
  ctx.main.append(h("section", { "aria-labelledby": "examples" }, h("h2", { id: "examples" }, "Questions to start with"), questions));
  load(questions, ctx, "Choosing some questions.", (signal) => examples(ctx, signal), (found) =>
    h("ul", { class: "cards" }, found.map((q) => h("li", null, h("a", { href: address("ask", q.query) }, q.words)))));
  ctx.main.append(
    h("section", { "aria-labelledby": "tasks" }, h("h2", { id: "tasks" }, "The graph as a whole"),
      h("ul", { class: "cards tasks" },
        task("missing", "Missing facts", "What the graph most probably lacks"),
        task("suspicious", "Suspicious facts", "What looks wrong, given the rest of the graph"),
        task("whatif", "What if", "Add or remove facts and see how answers change"),
        task("rules", "Rules", "The paths that the model trusts for each relation"))),
    h("section", { "aria-labelledby": "relations" }, h("h2", { id: "relations" }, "Relations"), relations(ctx)));
  if (graph.types.length) {
    const types = graph.types.slice(0, 30).map((t) => h("li", null, h("a", { href: address("search", { type: t.name }) }, name(t.label)), ` ${number(t.entities)}`));
    ctx.main.append(h("section", { "aria-labelledby": "types" }, h("h2", { id: "types" }, "Types of entities"), h("ul", { class: "chips" }, types)));
  }
}

const task = (view, title, words) => h("li", null, h("a", { href: address(view) }, title), h("span", { class: "hint" }, words));

export function relations(ctx, view = "rules", most = 40) {
  const list = ctx.graph.relations_list;
  const items = list.slice(0, most).map((r) => h("li", null, h("a", { href: address(view, { relation: r.name }) }, name(r.label)), ` ${number(r.facts)}`));
  const rest = list.length > most && h("p", { class: "hint" }, `and ${number(list.length - most)} more`);
  return h("div", null, h("ul", { class: "chips" }, items), rest);
}

/** Questions about frequent entities, each with another relation. */
async function examples(ctx, signal) {
  const { entities } = await ctx.api.get("entities", { limit: 12 }, signal);
  const cards = await Promise.all(entities.map((e) => ctx.api.get("entity", { name: e.name, limit: 1 }, signal)));
  const found = [];
  const used = new Set();
  const take = (card, out, once) => {
    const c = card.counts.find((c) => (c.direction === "out") === out && !(once && used.has(c.relation)));
    if (!c || found.length >= EXAMPLES) return;
    used.add(c.relation);
    const own = h("strong", null, name(card.label));
    const query = out ? { head: card.name, relation: c.relation } : { relation: c.relation, tail: card.name };
    const words = out ? [own, " — ", name(c.label), " → ?"] : ["? — ", name(c.label), " → ", own];
    if (!found.some((f) => JSON.stringify(f.query) === JSON.stringify(query))) found.push({ query, words });
  };
  for (const once of [true, false]) for (const card of cards) for (const out of [true, false]) take(card, out, once);
  return found;
}

/** @param {import("./parts.js").Context} ctx */
export function search(ctx) {
  const q = ctx.params.get("q") ?? "";
  const type = ctx.params.get("type") ?? "";
  const of = type && (ctx.graph.types.find((t) => t.name === type)?.label ?? type);
  ctx.main.append(h("h1", null, q ? ["Entities for “", name(q), "”"] : "Entities", of && [" of type ", name(of)]));
  const box = h("div");
  ctx.main.append(box);
  load(box, ctx, "Searching.", (signal) => ctx.api.get("entities", { q, type, limit: 100 }, signal), ({ entities }) => {
    announce(count(entities.length, "entity", "entities"));
    if (!entities.length) return h("p", null, "No entity has a name like this.");
    return h("ul", { class: "plain" }, entities.map((e) => h("li", null, entityLink(e.name, e.label), h("span", { class: "detail" }, [...e.types, count(e.facts, "fact")].join(" · ")))));
  });
}
