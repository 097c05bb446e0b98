/** Addresses: everything that a view shows is in the query string of the page. */

export const params = () => new URLSearchParams(location.search);

/**
 * The address of a view of the current graph, with the changed facts kept.
 * @param {string} view "" for the first view
 * @param {Record<string, unknown>} wanted values; arrays are repeated, empty ones are left out
 * @param {{graph?: string, changes?: {add: string[][], remove: string[][]}}} other
 */
export function address(view, wanted = {}, { graph, changes } = {}) {
  const now = params();
  const next = new URLSearchParams();
  const chosen = graph ?? now.get("graph");
  if (chosen) next.set("graph", chosen);
  if (view) next.set("view", view);
  for (const [key, value] of Object.entries(wanted)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "" && item !== false) {
        next.append(key, item === true ? "1" : String(item));
      }
    }
  }
  const kept = changes ?? (graph === undefined || graph === now.get("graph") ? changedFacts(now) : NONE);
  for (const kind of ["add", "remove"]) {
    for (const fact of kept[kind]) next.append(kind, JSON.stringify(fact));
  }
  return `?${next}`;
}

const NONE = { add: [], remove: [] };

/** The facts that the address adds and removes; malformed ones are ignored. */
export function changedFacts(from = params()) {
  const read = (kind) =>
    from.getAll(kind).flatMap((text) => {
      try {
        const fact = JSON.parse(text);
        const good = Array.isArray(fact) && fact.length === 3 && fact.every((n) => typeof n === "string");
        return good ? [fact] : [];
      } catch {
        return [];
      }
    });
  return { add: read("add"), remove: read("remove") };
}

/** Goes to an address; `quiet` changes the address only, without showing the view again. */
export function go(to, { replace = false, quiet = false } = {}) {
  history[replace || quiet ? "replaceState" : "pushState"](null, "", to);
  if (!quiet) shown({ moved: !replace });
}

let shown = () => {};

/** @param {(how: {moved: boolean}) => void} show called whenever another view is wanted */
export function start(show) {
  shown = show;
  addEventListener("popstate", () => show({ moved: true }));
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href]");
    const other = event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (!link || other || event.defaultPrevented || !link.getAttribute("href").startsWith("?")) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  show({ moved: false });
}
