/** The model's card and the figures of the graph. */

import { h, name } from "./dom.js";
import { count, number } from "./text.js";

/** @param {import("./parts.js").Context} ctx */
export function about(ctx) {
  const { graph } = ctx;
  const item = (title, value) => h("div", null, h("dt", null, title), h("dd", null, value));
  ctx.main.append(
    h("h1", null, "About"),
    h("h2", null, "Graph"),
    h("dl", { class: "figures" }, item("Name", name(graph.name)), item("Entities", number(graph.entities)), item("Relations", number(graph.relations)), item("Facts", number(graph.triples)), item("Held-out facts", number(graph.held_out))),
    graph.held_out > 0 && h("p", { class: "hint" }, `${count(graph.held_out, "fact")} of the validation and test files are hidden from the model; answers that are among them are marked.`) || "",
    h("h2", null, "Model"),
    h("dl", { class: "figures" }, item("Title", graph.model.title), item("Parameters", number(graph.model.parameters)), item("Task", graph.model.task), item("Digest", h("code", { title: graph.model.digest }, graph.model.digest.slice(0, 16)))),
    graph.card ? h("section", { class: "card-text", "aria-label": "Model card" }, markdown(graph.card)) : "",
    h("h2", null, "REST API"),
    h("p", null, "Everything on this page comes from the API under ", h("code", null, "/api/v1"), "; downloads have the same address with ", h("code", null, "format=json"), ", ", h("code", null, "csv"), " or ", h("code", null, "ttl"), "."));
}

/** Renders the part of Markdown that model cards use; anything else stays text. */
export function markdown(text) {
  const lines = text.replace(/^---\n[\s\S]*?\n---\n/, "").replace(/\r/g, "").split("\n");
  const found = [];
  let i = 0;
  const take = (test) => {
    const own = [];
    while (i < lines.length && test(lines[i])) own.push(lines[i++]);
    return own;
  };
  while (i < lines.length) {
    const line = lines[i];
    const title = /^(#{1,6})\s+(.*)/.exec(line);
    if (!line.trim()) i++;
    else if (title) {
      found.push(h(`h${Math.min(title[1].length + 2, 6)}`, null, inline(title[2])));
      i++;
    } else if (line.startsWith("```")) {
      i++;
      const code = take((l) => !l.startsWith("```"));
      i++;
      found.push(h("pre", { tabindex: "0" }, code.join("\n")));
    } else if (/^\s*\|/.test(line)) found.push(table(take((l) => /^\s*\|/.test(l))));
    else if (/^\s*[-*]\s/.test(line)) {
      const items = [];
      for (const l of take((l) => /^\s*[-*]\s/.test(l) || (/^\s+\S/.test(l) && !/^\s*\|/.test(l)))) {
        if (/^\s*[-*]\s/.test(l)) items.push(l.replace(/^\s*[-*]\s/, ""));
        else items.push(`${items.pop()} ${l.trim()}`);
      }
      found.push(h("ul", null, items.map((t) => h("li", null, inline(t)))));
    } else found.push(h("p", null, inline([line, ...(i++, take((l) => l.trim() && !/^(#|```|\s*\||\s*[-*]\s)/.test(l)))].join(" "))));
  }
  return found;
}

function table(lines) {
  const cells = (l) => l.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());
  const [head, ...rows] = lines.filter((l) => !/^[\s|:-]+$/.test(l)).map(cells);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", null,
    h("thead", null, h("tr", null, head.map((c) => (c ? h("th", { scope: "col" }, inline(c)) : h("td", null))))),
    h("tbody", null, rows.map((r) => h("tr", null, r.map((c) => h("td", null, inline(c))))))));
}

/** Code, bold, and links to https addresses. */
function inline(text) {
  const mark = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\((https:\/\/[^)\s]+)\)/g;
  const parts = [];
  let at = 0;
  for (const m of text.matchAll(mark)) {
    parts.push(text.slice(at, m.index));
    parts.push(m[1] ? h("code", null, m[1]) : m[2] ? h("strong", null, m[2]) : h("a", { href: m[4], rel: "noreferrer" }, m[3]));
    at = m.index + m[0].length;
  }
  return [...parts, text.slice(at)];
}
