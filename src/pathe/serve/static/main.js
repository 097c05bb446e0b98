/** Starts the page: the frame around the views, and which view is shown. */

import { client, graphs, request, url } from "./api.js";
import { append, h, name, newId } from "./dom.js";
import { entityField, problem, typeChoice } from "./parts.js";
import { address, changedFacts, go, params, start as listen } from "./router.js";
import { about } from "./view-about.js";
import { ask } from "./view-ask.js";
import { entity } from "./view-entity.js";
import { explain } from "./view-explain.js";
import { missing, rules, suspicious } from "./view-facts.js";
import { search, start } from "./view-start.js";
import { changesBar, whatif } from "./view-whatif.js";

const VIEWS = { "": start, search, entity, ask, explain, whatif, missing, suspicious, rules, about };
const TITLES = { ask: "Ask", whatif: "What if", missing: "Missing facts", suspicious: "Suspicious facts", rules: "Rules", about: "About" };
const by = (id) => document.getElementById(id);

let running = new AbortController();
let all = null;
const details = new Map();

async function show({ moved }) {
  running.abort();
  const { signal } = (running = new AbortController());
  const main = by("main");
  const own = params();
  const focused = main.contains(document.activeElement) && document.activeElement.dataset.key;
  try {
    if (!all) main.replaceChildren(h("p", { class: "loading", role: "status" }, "Loading the graph."));
    all ??= (await graphs(signal)).graphs;
    const wanted = own.get("graph") ?? all[0]?.name;
    if (!all.some((g) => g.name === wanted)) throw new Error(wanted ? `There is no graph with the name ${wanted}.` : "The server has no graph.");
    if (!own.has("graph")) {
      own.set("graph", wanted);
      go(`?${own}`, { quiet: true });
    }
    if (!details.has(wanted)) details.set(wanted, await (await request(url(`graphs/${encodeURIComponent(wanted)}`), { signal })).json());
    const api = client(wanted, changedFacts(), signal);
    const view = Object.hasOwn(VIEWS, own.get("view") ?? "") ? own.get("view") ?? "" : "";
    const forget = () => {
      all = null;
      details.delete(wanted);
    };
    const ctx = { graph: details.get(wanted), params: own, api, signal, main, forget };
    frame(ctx, view);
    if (view !== "whatif") {
      if (api.changed) main.replaceChildren(h("p", { class: "loading", role: "status" }, "Applying the changed facts."));
      await api.ready();
    }
    if (signal.aborted) return;
    main.replaceChildren();
    document.title = [TITLES[view], ctx.graph.name, "PathE"].filter(Boolean).join(" · ");
    VIEWS[view](ctx);
    // A changed option draws the view again; whoever uses the keyboard should stay where they were.
    if (focused && !moved) [...main.querySelectorAll("[data-key]")].find((e) => e.dataset.key === focused)?.focus();
    if (view === "whatif") await Promise.resolve(api.ready()).catch((error) => signal.aborted || main.append(problem(error, () => show({ moved }))));
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    main.replaceChildren(problem(error, () => show({ moved })));
  }
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

/** Draws what is around the view. */
function frame(ctx, view) {
  by("brand").href = address("");
  by("nav").replaceChildren(...Object.entries(TITLES).map(([key, title]) => h("a", { href: address(key), "aria-current": key === view ? "page" : null }, title)));
  changesBar(ctx);
  const choice = by("graph-choice");
  if (all.length > 1) {
    const id = newId("graph");
    const select = h("select", { id, onchange: () => go(address("", {}, { graph: select.value })) }, all.map((g) => h("option", { value: g.name, selected: g.name === ctx.graph.name }, g.name)));
    choice.replaceChildren(h("label", { for: id, class: "unseen" }, "Graph"), select);
  } else choice.replaceChildren(h("a", { href: address("") }, name(ctx.graph.name)));
  searchBox(ctx);
  by("foot").replaceChildren(h("p", null, "Model: ", name(ctx.graph.model.title), ". Predictions can be wrong: look at the evidence before you rely on one."));
}

function searchBox(ctx) {
  const box = by("search");
  const type = typeChoice(ctx, ctx.params.get("view") === "search" ? ctx.params.get("type") : "", null, "Type of entity");
  const kind = () => type?.querySelector("select").value ?? "";
  const field = entityField(ctx, { label: "Search entities", hideLabel: true, placeholder: "Search entities", key: "search", type: kind, text: ctx.params.get("q") ?? "", onpick: (c) => go(address("entity", { name: c.value })) });
  const sent = (event) => {
    event.preventDefault();
    go(address("search", { q: field.input.value.trim(), type: kind() }));
  };
  type?.querySelector("label").classList.add("unseen");
  const form = h("form", { onsubmit: sent });
  append(form, field.element, type, h("button", { type: "submit", class: "unseen" }, "Search"));
  box.replaceChildren(form);
}

listen(show);
