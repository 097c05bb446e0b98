/** Lists about the whole graph: missing facts, suspicious facts, rules. */

import { announce, bar, h, name, newId } from "./dom.js";
import { again, arrow, entityField, entityLink, explainAddress, exports, filters, load, missingFacts, pattern, relationField, relationLabel, suspiciousFacts, typeChoice } from "./parts.js";
import { count, number, percent, roundPercent } from "./text.js";
import { relations } from "./view-start.js";

const CHOICES = [20, 50, 100, 200];

function amount(value) {
  const id = newId("k");
  const select = h("select", { id }, CHOICES.map((n) => h("option", { value: n, selected: n === value }, n)));
  return { element: h("div", { class: "field" }, h("label", { for: id }, "How many"), select), value: () => (select.value === "20" ? null : select.value) };
}

/** @param {import("./parts.js").Context} ctx */
export function missing(ctx) {
  const get = (key) => ctx.params.get(key) ?? "";
  const relation = relationField(ctx, { label: "Relation", value: get("relation"), text: relationLabel(ctx, get("relation")), placeholder: "Any", key: "relation" });
  const entity = entityField(ctx, { label: "Entity", value: get("entity"), placeholder: "Any", key: "entity" });
  const type = typeChoice(ctx, get("type"), null, "Entities of type");
  const k = amount(Number(get("k")) || 20);
  const query = { relation: get("relation"), entity: get("entity"), type: get("type"), k: get("k") || 20 };
  const box = h("div");
  ctx.main.append(h("h1", null, "Missing facts", query.relation && [": ", name(relationLabel(ctx, query.relation))]),
    h("p", { class: "lead" }, "Facts that the graph most probably lacks, and the probability that each is true."),
    filters([relation.element, entity.element, type, k.element], () => again("missing", { relation: relation.value(), entity: entity.value(), type: type?.querySelector("select").value, k: k.value() }), "Find"), box);
  missingFacts(box, ctx, query);
}

/** @param {import("./parts.js").Context} ctx */
export function suspicious(ctx) {
  const get = (key) => ctx.params.get(key) ?? "";
  const relation = relationField(ctx, { label: "Relation", value: get("relation"), text: relationLabel(ctx, get("relation")), placeholder: "Any", key: "relation" });
  const entity = entityField(ctx, { label: "Entity", value: get("entity"), placeholder: "Any", key: "entity" });
  const type = typeChoice(ctx, get("type"), null, "Entities of type");
  const k = amount(Number(get("k")) || 20);
  const query = { relation: get("relation"), entity: get("entity"), type: get("type"), k: get("k") || 20 };
  const box = h("div");
  ctx.main.append(h("h1", null, "Suspicious facts", query.relation && [": ", name(relationLabel(ctx, query.relation))]),
    h("p", { class: "lead" }, "Facts that look wrong, given the rest of the graph."),
    filters([relation.element, entity.element, type, k.element], () => again("suspicious", { relation: relation.value(), entity: entity.value(), type: type?.querySelector("select").value, k: k.value() }), "Find"), box);
  suspiciousFacts(box, ctx, query);
}

/** One path that follows a rule, with links to its entities and to the fact that it supports. */
function instance(rule, entities, labels) {
  const hops = rule.path.map((relation, i) => {
    const back = relation.startsWith("^");
    return [" ", arrow(back ? rule.labels[i].replace(/^\^/, "") : rule.labels[i], back), " ", entityLink(entities[i + 1], labels[i + 1])];
  });
  const about = explainAddress({ head: entities[0], relation: rule.relation, tail: entities.at(-1) });
  return [entityLink(entities[0], labels[0]), hops, " ", h("a", { href: about }, "Explain", h("span", { class: "unseen" }, ` ${labels[0]} ${rule.label} ${labels.at(-1)}`))];
}

/** @param {import("./parts.js").Context} ctx */
export function rules(ctx) {
  const wanted = ctx.params.get("relation") ?? "";
  const relation = relationField(ctx, { label: "Relation", value: wanted, text: relationLabel(ctx, wanted), key: "relation", onpick: (c) => again("rules", { relation: c.value }) });
  ctx.main.append(h("h1", null, "Rules", wanted && [": ", name(relationLabel(ctx, wanted))]),
    h("p", { class: "lead" }, "The paths that the model trusts most to tell whether two entities have a relation."),
    filters([relation.element], () => again("rules", { relation: relation.value() }), "Show"));
  if (!wanted) {
    ctx.main.append(h("h2", null, "Relations"), relations(ctx, "rules", 200));
    return;
  }
  const box = h("div");
  const query = { relation: wanted, k: 10 };
  ctx.main.append(box);
  load(box, ctx, "Reading rules from sampled facts.", (signal) => ctx.api.get("rules", query, signal), ({ rules: found }) => {
    announce(count(found.length, "rule"));
    if (!found.length) return h("p", null, "The model trusts no path for this relation.");
    const most = Math.max(...found.map((r) => r.trust), 1e-9);
    const rows = found.map((r, i) => h("li", { class: "row" }, h("span", { class: "rank" }, i + 1),
      h("span", { class: "what" }, h("span", { class: "pattern" }, pattern(r.path, r.labels))),
      bar(r.trust / most, "for"), h("span", { class: "share" }, percent(r.trust)),
      h("span", { class: "more detail" }, `Holds for ${number(r.support)} of ${count(r.connected, "connected pair")} (${roundPercent(r.confidence)}).`),
      r.instances.length > 0 && h("ul", { class: "more instances", "aria-label": "Instances" }, r.instances.map((entities, n) => h("li", null, instance(r, entities, r.instance_labels[n]))))));
    return [h("p", { class: "hint" }, "The percentage is trust: the path's share of what all paths add to the scores of sampled facts."), h("ol", { class: "rows" }, rows), exports(ctx, "rules", query, ["json", "csv"])];
  }, { slow: true });
}
