/** Questions: two of head, relation and tail are given, the third is predicted. */

import { announce, append, bar, h, name, newId } from "./dom.js";
import { check, entityField, entityLink, explainAddress, exports, load, pattern, problem, relationField, relationLabel, typeChoice } from "./parts.js";
import { address, go } from "./router.js";
import { count, number, percent, score, signed } from "./text.js";

const STEP = 10;
const HELD_OUT = "true, held out";
const BEFORE = 100; // so many ranks of the unchanged graph are looked at

/** @param {import("./parts.js").Context} ctx */
export function ask(ctx) {
  const get = (key) => ctx.params.get(key) ?? "";
  const query = { head: get("head"), relation: get("relation"), tail: get("tail") };
  const given = Object.values(query).filter(Boolean).length;
  const { form, fields } = questionForm(ctx, query);
  ctx.main.append(h("h1", null, "Ask"), form);
  if (given === 2) answers(ctx, query, fields);
  else ctx.main.append(h("p", { class: "hint" }, "Fill in two fields and leave the third one empty: that is the question. With all three, the fact is explained."));
}

function questionForm(ctx, query) {
  const fields = {
    head: entityField(ctx, { label: "Head", value: query.head, placeholder: "?", key: "head" }),
    relation: relationField(ctx, { label: "Relation", value: query.relation, text: relationLabel(ctx, query.relation), placeholder: "?", key: "relation" }),
    tail: entityField(ctx, { label: "Tail", value: query.tail, placeholder: "?", key: "tail" }),
  };
  if (Object.values(query).filter(Boolean).length === 1) showLabel(ctx, query, fields);
  const warning = h("p", { class: "warning", role: "alert" });
  const sent = (event) => {
    event.preventDefault();
    const next = Object.fromEntries(Object.entries(fields).map(([key, field]) => [key, field.value()]));
    const n = Object.values(next).filter(Boolean).length;
    if (n < 2) warning.textContent = "Fill in two of the three fields.";
    else go(n === 3 ? address("explain", next) : address("ask", { ...next, known: ctx.params.get("known") }));
  };
  const clear = h("a", { class: "button", href: address("ask") }, "Clear");
  const form = h("form", { class: "fields question", onsubmit: sent }, Object.values(fields).map((f) => f.element),
    h("div", { class: "submit" }, h("button", { type: "submit", class: "main" }, "Ask"), clear), warning);
  return { form, fields };
}

/** The address has the exact name; the field shows its label as soon as that is known. */
async function showLabel(ctx, query, fields) {
  for (const key of ["head", "tail"].filter((key) => query[key])) {
    const card = await ctx.api.get("entity", { name: query[key], limit: 1 }).catch(() => null);
    if (card && fields[key].value() === query[key]) fields[key].show(card.name, card.label);
  }
}

function answers(ctx, query, fields) {
  const params = ctx.params;
  const known = params.get("known") === "1";
  const any = params.get("plausible") === "0";
  const type = params.get("type") ?? "";
  const asked = Object.keys(query).find((key) => !query[key]);
  const options = { ...query, known: known || null, type, plausible: any ? "false" : null };
  const shown = Math.max(Number(params.get("n")) || STEP, STEP);
  const kept = () => ({ ...query, known, plausible: any ? "0" : null, type, n: shown > STEP ? shown : null });
  const change = (next) => go(address("ask", { ...kept(), n: null, ...next }), { replace: true });

  const box = h("section", { "aria-labelledby": "answers" });
  const compared = h("div");
  ctx.main.append(
    h("div", { class: "fields options-row" },
      check("Show known facts, too", known, (on) => change({ known: on })),
      asked !== "relation" && [
        check("Rank implausible answers, too", any, (on) => change({ plausible: on ? "0" : null })),
        typeChoice(ctx, type, (t) => change({ type: t }), "Answers of type")]),
    box, compared);

  const ranked = async (signal) => {
    const wanted = ctx.api.get("predict", { ...options, known: known ? "true" : null, k: shown }, signal);
    const before = ctx.api.changed ? ranksBefore(ctx, options, known) : null;
    return { result: await wanted, before: await before };
  };
  const title = () => h("h2", { id: "answers" }, "Answers");
  return load(box, ctx, "Ranking answers.", ranked, ({ result, before }) => {
    for (const key of ["head", "tail"].filter((key) => query[key])) {
      const exact = result[key];
      if (fields[key].value() === query[key]) fields[key].show(exact, result.labels?.[exact] ?? exact);
    }
    const chosen = params.getAll("compare").slice(0, 2);
    const list = h("ol", { class: "rows" });
    const scale = Math.max(...result.answers.map((a) => a.probability), 0.01);
    const draw = (found) => append(list, found.map((a) => row(ctx, query, asked, a, scale, before, chosen, compare)));
    draw(result.answers);
    let total = result.answers.length;
    const more = h("button", { type: "button", onclick: next, hidden: total < shown }, "More answers");
    const wrong = h("div");

    async function next() {
      more.disabled = true;
      wrong.replaceChildren();
      try {
        const found = (await ctx.api.get("predict", { ...options, known: known ? "true" : null, k: STEP, offset: total })).answers;
        draw(found);
        total += found.length;
        more.hidden = found.length < STEP;
        announce(`${count(total, "answer")} shown`);
        go(address("ask", { ...kept(), n: total, compare: chosen }), { quiet: true });
      } catch (error) {
        if (!ctx.signal.aborted) wrong.replaceChildren(problem(error, next));
      }
      more.disabled = false;
    }

    function compare(answer, on) {
      if (on) chosen.push(answer.name);
      else chosen.splice(chosen.indexOf(answer.name), 1);
      for (const input of list.querySelectorAll("input")) input.disabled = chosen.length >= 2 && !input.checked;
      go(address("ask", { ...kept(), n: total > STEP ? total : null, compare: chosen }), { quiet: true });
      sideBySide(compared, ctx, query, asked, chosen);
    }

    announce(`${count(total, "answer")} for ${question(query)}`);
    for (const input of list.querySelectorAll("input")) input.disabled = chosen.length >= 2 && !input.checked;
    sideBySide(compared, ctx, query, asked, chosen);
    return [title(), notes(result), total ? list : h("p", null, "There are no answers that the graph doesn't have already."), wrong,
      h("div", { class: "actions" }, more, chosen.length < 2 && total > 1 && h("span", { class: "hint" }, "Choose two answers to compare them.")),
      result.left_out > 0 && h("p", { class: "hint" }, `${count(result.left_out, "candidate")} unlike all known answers ${result.left_out === 1 ? "was" : "were"} left out.`),
      h("p", { class: "hint" }, "The probability assumes that one of the candidates is right. ", h("span", { class: "key new" }), " predicted, ", h("span", { class: "key known" }), " known fact"),
      ctx.graph.held_out > 0 && h("p", { class: "hint" }, h("span", { class: "mark held" }, HELD_OUT), " marks facts that were kept from the model to test it. An answer without this mark may be true as well: nobody has checked it."),
      exports(ctx, "predict", { ...options, known: known ? "true" : null, k: shown })];
  });
}

const question = (query) => Object.values(query).map((part) => part || "?").join(" ");

/** The ranks of answers in the unchanged graph and its known answers; null if it can't be asked there. */
async function ranksBefore(ctx, options, known) {
  try {
    const old = await ctx.api.unchanged("predict", { ...options, known: known ? "true" : null, k: BEFORE });
    return { ranks: new Map(old.answers.map((a) => [a.name, a.rank])), known: new Set(old.known.map((k) => k.name)) };
  } catch {
    return null; // for instance, about an entity that only the changes have
  }
}

function notes(result) {
  const known = result.known.length > 0 && result.asked !== "relation" && h("p", null, "The graph already has: ", result.known.slice(0, 12).map((k, i) => [i > 0 && ", ", entityLink(k.name, k.label)]), result.known.length > 12 && ` and ${number((result.n_known ?? result.known.length) - 12)} more`, ".");
  const said = result.notes.map((note) => h("p", { class: result.implausible ? "note strong" : "note" }, note.charAt(0).toUpperCase() + note.slice(1), /[.?!]$/.test(note) ? "" : "."));
  return [said, known];
}

function row(ctx, query, asked, a, scale, before, chosen, compare) {
  const f = { ...query, [asked]: a.name };
  const id = newId("compare");
  const input = h("input", { type: "checkbox", id, checked: chosen.includes(a.name), onchange: () => compare(a, input.checked) });
  return h("li", { class: `row answer${a.known ? " is-known" : ""}`, "data-name": a.name },
    h("span", { class: "rank" }, a.rank),
    h("span", { class: "what" }, h("a", { href: explainAddress(f, asked), class: "answer-name" }, name(a.label), h("span", { class: "unseen" }, ": explain this answer")), " ",
      a.known && h("span", { class: "mark known" }, "known"), a.held_out && h("span", { class: "mark held" }, HELD_OUT), before && moved(a, before)),
    bar(a.probability / scale, a.known ? "known" : "new"),
    h("span", { class: "share" }, percent(a.probability)),
    h("span", { class: "more" },
      h("a", { href: explainAddress(f, asked) }, "Explain", h("span", { class: "unseen" }, ` ${a.label}`)),
      asked !== "relation" && h("a", { href: address("entity", { name: a.name }) }, "Card", h("span", { class: "unseen" }, ` of ${a.label}`)),
      h("span", { class: "check" }, input, h("label", { for: id }, "Compare", h("span", { class: "unseen" }, ` ${a.label}`))),
      h("span", { class: "detail" }, `score ${score(a.score)}`)));
}

/** How the rank changed against the unchanged graph. */
function moved(a, before) {
  const old = before.ranks.get(a.name);
  if (old === undefined && before.known.has(a.name)) return h("span", { class: "mark same" }, "known before");
  if (old === a.rank) return h("span", { class: "mark same" }, "rank as before");
  const up = old === undefined || old > a.rank;
  const from = old === undefined ? `not in the first ${BEFORE} before` : `rank ${number(old)} before`;
  return h("span", { class: `mark ${up ? "up" : "down"}` }, `${up ? "▲" : "▼"} ${from}`);
}

/** Two answers and what speaks for each. */
function sideBySide(box, ctx, query, asked, chosen) {
  box.replaceChildren();
  if (chosen.length !== 2) return;
  const inner = h("div");
  box.append(h("section", { class: "panel", "aria-labelledby": "compared" }, h("h2", { id: "compared" }, "Two answers side by side"),
    h("p", { class: "hint" }, "Both are ranked and explained as if the graph lacked them; known facts have another rank here than in the list."), inner));
  const fetch = (signal) => Promise.all(chosen.map((answer) => ctx.api.get("explain", { ...query, [asked]: answer, asked }, signal)));
  load(inner, ctx, "Explaining both answers.", fetch, (both) => {
    announce("Comparison shown");
    const shown = both.map((e) => e.labels?.[e[asked]] ?? e[asked]);
    const found = new Map();
    both.forEach((e, side) => e.patterns.forEach((p) => {
      const key = JSON.stringify(p.relations);
      if (!found.has(key)) found.set(key, { pattern: p, sides: [null, null] });
      found.get(key).sides[side] = p;
    }));
    const rows = [...found.values()];
    const largest = Math.max(...rows.flatMap((r) => r.sides.map((p) => Math.abs(p?.effect ?? 0))), 1e-9);
    const cell = (p) => h("td", null, p ? [h("span", { class: "figure" }, signed(p.effect)), bar(Math.abs(p.effect) / largest, p.effect < 0 ? "against" : "for"), h("span", { class: "detail" }, `${p.complete ? "" : "at least "}${count(p.n_paths, "path")}${p.effect < 0 ? ", against" : ""}`)] : h("span", { class: "detail" }, "no such paths"));
    const line = (title, of) => h("tr", null, h("th", { scope: "row" }, title), both.map((e) => h("td", null, of(e))));
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Comparison" }, h("table", { class: "compare" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Effect on the score"), shown.map((label) => h("th", { scope: "col" }, name(label))))),
      h("tbody", null,
        line("Rank", (e) => number(e.rank)), line("Probability", (e) => percent(e.probability)), line("Score", (e) => score(e.score)), line("Without any path", (e) => score(e.alone)),
        rows.map((r) => h("tr", null, h("th", { scope: "row", class: "pattern" }, pattern(r.pattern.relations, r.pattern.labels)), r.sides.map(cell))))));
  });
}

