/** The card of an entity: its facts, and what to ask about it. */

import { announce, h, name, newId } from "./dom.js";
import { arrow, entityLink, explainAddress, exports, load, missingFacts, similarEntities, suspiciousFacts } from "./parts.js";
import { address, go } from "./router.js";
import { count, number } from "./text.js";

const PAGE = 50;

/** @param {import("./parts.js").Context} ctx */
export function entity(ctx) {
  const own = ctx.params.get("name") ?? "";
  const wanted = { name: own, relation: ctx.params.get("relation"), direction: ctx.params.get("direction"), offset: Number(ctx.params.get("offset")) || null };
  const box = h("div");
  ctx.main.append(box);
  const query = { ...wanted, limit: PAGE };
  return load(box, ctx, "Loading the entity.", (signal) => ctx.api.get("entity", query, signal), (card) => {
    document.title = `${card.label} · ${ctx.graph.name} · PathE`;
    announce(`${card.label}, ${count(card.total, "fact")}`);
    const extra = h("div", { class: "extra" });
    return [
      h("h1", null, name(card.label)),
      card.label !== card.name && h("p", { class: "hint exact" }, name(card.name)),
      card.types.length > 0 && h("ul", { class: "chips" }, card.types.map((t) => h("li", null, h("a", { href: address("search", { type: t }) }, name(ctx.graph.types.find((g) => g.name === t)?.label ?? t))))),
      h("div", { class: "actions" }, h("a", { class: "button main", href: address("ask", { head: own }) }, "Ask about it"), tools(ctx, own, extra)),
      extra,
      h("section", { "aria-labelledby": "facts" }, h("h2", { id: "facts" }, count(card.total, "fact")), choice(card, wanted), groups(card), pages(card, wanted), exports(ctx, "entity", wanted)),
    ];
  });
}

/** Buttons that load more about the entity; which one is open is part of the address. */
function tools(ctx, own, extra) {
  const query = { entity: own, k: 10 };
  const kinds = {
    missing: ["Missing facts", (box) => missingFacts(box, ctx, query)],
    suspicious: ["Suspicious facts", (box) => suspiciousFacts(box, ctx, query)],
    similar: ["Similar entities", (box) => similarEntities(box, ctx, own)],
  };
  const buttons = Object.entries(kinds).map(([key, [title]]) =>
    h("button", { type: "button", "aria-expanded": "false", "data-show": key, onclick: () => open(key, buttons.find((b) => b.dataset.show === key).getAttribute("aria-expanded") === "false") }, title));

  function open(key, wanted) {
    for (const b of buttons) b.setAttribute("aria-expanded", String(wanted && b.dataset.show === key));
    const now = Object.fromEntries(["name", "relation", "direction", "offset"].map((k) => [k, ctx.params.get(k)]));
    go(address("entity", { ...now, show: wanted ? key : null }), { quiet: true });
    extra.replaceChildren();
    if (!wanted) return;
    const box = h("div");
    const id = newId("extra");
    extra.append(h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, kinds[key][0]), box));
    kinds[key][1](box);
  }

  const first = ctx.params.get("show");
  if (first && Object.hasOwn(kinds, first)) queueMicrotask(() => open(first, true));
  return buttons;
}

/** Chooses one relation of the entity. */
function choice(card, wanted) {
  if (card.counts.length < 2) return null;
  const id = newId("of");
  const key = (c) => `${c.direction} ${c.relation}`;
  const options = card.counts.map((c) => h("option", { value: key(c), selected: c.relation === wanted.relation && c.direction === wanted.direction }, `${c.direction === "out" ? "→" : "←"} ${c.label} (${number(c.facts)})`));
  const select = h("select", { id, onchange: () => {
    const of = card.counts.find((c) => key(c) === select.value);
    go(address("entity", { name: wanted.name, relation: of?.relation, direction: of?.direction }));
  } }, h("option", { value: "" }, "All"), options);
  return h("div", { class: "field" }, h("label", { for: id }, "Relation"), select);
}

function groups(card) {
  const found = new Map();
  for (const f of card.facts) {
    const key = JSON.stringify([f.direction, f.relation]);
    found.set(key, [...(found.get(key) ?? []), f]);
  }
  return [...found.values()].map((facts) => {
    const [{ direction, relation, relation_label: label }] = facts;
    const out = direction === "out";
    const all = card.counts.find((c) => c.relation === relation && c.direction === direction)?.facts ?? facts.length;
    const more = address("ask", out ? { head: card.name, relation } : { relation, tail: card.name });
    const items = facts.map((f) => {
      const [other, shown] = out ? [f.tail, f.tail_label] : [f.head, f.head_label];
      return h("li", null, entityLink(other, shown), " ", h("a", { class: "why-link", href: explainAddress(f), "aria-label": `why? ${f.head_label} ${f.relation_label} ${f.tail_label}` }, "why?"));
    });
    return h("div", { class: "group" },
      h("h3", null, out ? arrow(label) : arrow(label, true), h("span", { class: "detail" }, out ? count(all, "fact") : `${count(all, "fact")}, to ${card.label}`), " ",
        h("a", { class: "small", href: more, "aria-label": out ? `ask for more: ${card.label} ${label} ?` : `ask for more: ? ${label} ${card.label}` }, "ask for more")),
      h("ul", { class: "chips" }, items));
  });
}

function pages(card, wanted) {
  if (card.total <= PAGE && !card.offset) return null;
  const to = (offset) => address("entity", { ...wanted, offset: offset || null });
  const end = Math.min(card.offset + card.facts.length, card.total);
  return h("nav", { class: "pages", "aria-label": "Pages of facts" },
    card.offset > 0 && h("a", { class: "button", href: to(Math.max(card.offset - PAGE, 0)) }, "Previous"),
    h("span", null, `${number(card.offset + 1)}–${number(end)} of ${number(card.total)}`),
    end < card.total && h("a", { class: "button", href: to(end) }, "Next"));
}
