/** What if: facts that are added or removed for this visitor only. */

import { append, h, name } from "./dom.js";
import { arrow, entityField, problem, relationField, relationLabel } from "./parts.js";
import { address, changedFacts, go } from "./router.js";
import { count } from "./text.js";

let made = ""; // what was changed for everyone, to be said once

/** @param {import("./parts.js").Context} ctx */
export function whatif(ctx) {
  const get = (key) => ctx.params.get(key) ?? "";
  const fields = {
    head: entityField(ctx, { label: "Head", value: get("head"), key: "head" }),
    relation: relationField(ctx, { label: "Relation", value: get("relation"), text: relationLabel(ctx, get("relation")), key: "relation" }),
    tail: entityField(ctx, { label: "Tail", value: get("tail"), key: "tail" }),
  };
  const warning = h("p", { class: "warning", role: "alert" });
  const change = (kind) => {
    const fact = Object.values(fields).map((field) => field.value());
    if (fact.some((part) => !part)) warning.textContent = "Fill in all three fields.";
    else go(address("whatif", {}, { changes: changed(kind, fact) }));
  };
  const sent = (event) => {
    event.preventDefault();
    change("add");
  };
  append(ctx.main,
    h("h1", null, "What if"),
    made && h("p", { class: "done", role: "status" }, made),
    h("p", { class: "lead" }, "Add or remove facts and ask again. The changes are yours alone: they are kept in the address of this page, which you can share, and not in the graph."),
    h("form", { class: "fields question", onsubmit: sent }, Object.values(fields).map((f) => f.element),
      h("div", { class: "submit" }, h("button", { type: "submit", class: "main" }, "Add this fact"), h("button", { type: "button", onclick: () => change("remove") }, "Remove this fact")), warning));
  made = "";
  const { add, remove } = changedFacts();
  if (!add.length && !remove.length) {
    ctx.main.append(h("p", { class: "hint" }, "Nothing is changed yet. An added fact may name a new entity."));
    return;
  }
  const item = (kind, fact) => {
    const [head, relation, tail] = fact;
    return h("li", { class: `changed ${kind}` },
      h("span", { class: "what" }, h("span", { class: `mark ${kind === "add" ? "up" : "down"}` }, kind === "add" ? "added" : "removed"), " ", words(ctx, fact)),
      h("span", { class: "more" }, h("a", { href: address("ask", { head, relation }) }, "Ask for tails"), h("a", { href: address("ask", { relation, tail }) }, "Ask for heads"),
        h("button", { type: "button", class: "quiet", "aria-label": `Undo ${fact.join(" ")}`, onclick: () => go(address("whatif", {}, { changes: undone(kind, fact) })) }, "Undo")));
  };
  ctx.main.append(h("section", { "aria-labelledby": "changed" }, h("h2", { id: "changed" }, count(add.length + remove.length, "changed fact")),
    h("ul", { class: "plain" }, add.map((f) => item("add", f)), remove.map((f) => item("remove", f))),
    h("p", null, h("a", { class: "button main", href: address("ask") }, "Ask with these changes"))));
  if (ctx.graph.writable) ctx.main.append(forEveryone(ctx));
}

/** Offers to write the changes to the graph itself. */
function forEveryone(ctx) {
  const result = h("div", { "aria-live": "polite" });
  const write = async () => {
    button.disabled = true;
    try {
      const { added, removed } = await ctx.api.write(changedFacts());
      made = `For everyone: ${count(added, "fact")} added, ${count(removed, "fact")} removed.`;
      ctx.forget();
      go(address("whatif", {}, { changes: { add: [], remove: [] } }));
    } catch (error) {
      if (ctx.signal.aborted) return;
      button.disabled = false;
      result.replaceChildren(problem(error, write));
    }
  };
  const button = h("button", { type: "button", onclick: write }, "Change the graph for everyone");
  return h("section", { "aria-labelledby": "everyone" }, h("h2", { id: "everyone" }, "For everyone"),
    h("p", null, "These changes can be written to the graph itself. Everyone sees them then, and they stay when the server is started again. The server asks for its token."), button, result);
}

const same = (a, b) => a.every((part, i) => part === b[i]);

/** The changes with one more; a fact that was changed the other way is as it was. */
function changed(kind, fact) {
  const now = changedFacts();
  const other = kind === "add" ? "remove" : "add";
  if (now[other].some((f) => same(f, fact))) return undone(other, fact);
  if (!now[kind].some((f) => same(f, fact))) now[kind].push(fact);
  return now;
}

function undone(kind, fact) {
  const now = changedFacts();
  now[kind] = now[kind].filter((f) => !same(f, fact));
  return now;
}

const words = (ctx, [head, relation, tail]) => h("span", { class: "fact" }, name(head), " ", arrow(relationLabel(ctx, relation)), " ", name(tail));

/** The bar above every view while facts are changed. */
export function changesBar(ctx) {
  const { add, remove } = changedFacts();
  const n = add.length + remove.length;
  const box = document.getElementById("changes");
  box.hidden = !n;
  if (!n) return box.replaceChildren();
  const wanted = Object.fromEntries([...ctx.params.keys()].filter((k) => !["graph", "view", "add", "remove", "compare"].includes(k)).map((k) => [k, ctx.params.getAll(k)]));
  const reset = address(ctx.params.get("view") ?? "", wanted, { changes: { add: [], remove: [] } });
  const list = [...add.map((f) => ["+", f]), ...remove.map((f) => ["−", f])].slice(0, 3).map(([sign, f], i) => [i > 0 && "; ", `${sign} `, words(ctx, f)]);
  return box.replaceChildren(h("div", { class: "wide" }, h("strong", null, `With ${count(n, "changed fact")}: `), h("span", null, list, n > 3 && `; and ${n - 3} more`), " ",
    h("a", { href: address("whatif") }, "Edit"), " ", h("a", { href: reset, id: "reset" }, "Reset")));
}
