/** Draws the paths between two entities: head left, tail right, shared entities merged. */

import { s } from "./dom.js";

const FONT = "system-ui, sans-serif";
const NODE = { height: 28, pad: 12, most: 220, size: 13 };
const LABEL = { size: 11, height: 16, most: 150 };
const GAP = { x: 56, y: 30, edge: 22 };
const MARGIN = 14;
const HEAD = 10; // length of an arrowhead

/** Colours as CSS values, for the page; `PRINT` is for files, where its style sheet is missing. */
export const SCREEN = { for: "var(--for)", against: "var(--against)", text: "var(--text)", node: "var(--raised)", rim: "var(--line-strong)", ground: "var(--ground)", faint: "var(--muted)", end: "var(--accent)", endText: "var(--on-accent)" };
export const PRINT = { for: "#1f5fa8", against: "#a94a00", text: "#1a1d21", node: "#ffffff", rim: "#8a929c", ground: "#ffffff", faint: "#6a717b", end: "#1f5fa8", endText: "#ffffff" };

/**
 * @typedef {{steps: string[][], effect: number, leftOut: boolean}} Path facts from one end to the other
 * @param {object} what
 * @param {string} what.head
 * @param {string} what.tail
 * @param {Path[]} what.paths strongest first
 * @param {(exact: string) => string} what.label
 * @param {typeof SCREEN} colours
 */
export function picture({ head, tail, paths, label }, colours = SCREEN) {
  const walks = paths.map((path) => ({ ...path, names: walk(path.steps, head) })).filter((p) => p.names);
  const nodes = arrange(head, tail, walks, label);
  const edges = joined(walks, nodes);
  const size = place(nodes, edges, label);
  const most = Math.max(...walks.map((p) => Math.abs(p.effect)), 1e-9);
  const drawn = edges.map((edge) => line(edge, most, label, colours));
  spread(drawn, nodes);
  const title = `Paths from ${label(head)} to ${label(tail)}`;
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: "img", "aria-label": `${title}. The list below says the same in words.`, "font-family": FONT },
    s("rect", { width: size.width, height: size.height, fill: colours.ground }),
    s("defs", null, heads(colours)),
    drawn.map((d) => d.line),
    drawn.map((d) => words(d, colours)),
    [...nodes.values()].map((node) => box(node, node.name === head || node.name === tail, colours)));
}

/** The entities along a path from `start` on; null if the path isn't connected to it. */
function walk(steps, start) {
  for (const ordered of [steps, [...steps].reverse()]) {
    const names = [start];
    for (const [h, , t] of ordered) {
      const at = names.at(-1);
      if (at !== h && at !== t) break;
      names.push(at === h ? t : h);
    }
    if (names.length === steps.length + 1) return names;
  }
  return null;
}

/** Gives every entity a column, after all entities that paths visit before it. */
function arrange(head, tail, walks, label) {
  const next = new Map([[head, new Set()], [tail, new Set()]]);
  const reaches = (from, to) => from === to || [...next.get(from)].some((n) => reaches(n, to));
  for (const { names } of walks) {
    names.forEach((name) => next.has(name) || next.set(name, new Set()));
    for (let i = 1; i < names.length; i++) {
      // Paths may disagree; then the stronger one, which comes first, decides.
      if (!reaches(names[i], names[i - 1])) next.get(names[i - 1]).add(names[i]);
    }
  }
  const columns = new Map([...next.keys()].map((name) => [name, name === head ? 0 : 1]));
  for (let changed = true; changed; ) {
    changed = false;
    for (const [from, all] of next) {
      for (const to of all) {
        if (columns.get(to) <= columns.get(from)) changed = Boolean(columns.set(to, columns.get(from) + 1));
      }
    }
  }
  columns.set(tail, Math.max(...[...columns].filter(([name]) => name !== tail).map(([, column]) => column)) + 1);
  return new Map([...columns].map(([name, column]) => [name, { name, column, slot: NODE.height + GAP.y, ...fitted(label(name), NODE.most, NODE.size) }]));
}

/** One line per relation of two entities, as strong as the strongest path through it. */
function joined(walks, nodes) {
  const found = new Map();
  for (const { steps, effect, leftOut } of walks) {
    for (const [h, relation, t] of steps) {
      const ends = nodes.get(h).column <= nodes.get(t).column ? [h, t] : [t, h];
      const key = JSON.stringify([...[h, t].sort(), relation]);
      const old = found.get(key) ?? { left: ends[0], right: ends[1], relation, effect, leftOut, along: false, back: false };
      if (Math.abs(effect) > Math.abs(old.effect)) old.effect = effect;
      old.leftOut ||= leftOut; // leaving out a pattern takes its facts from all other paths, too
      if (h === old.left) old.along = true;
      else old.back = true;
      found.set(key, old);
    }
  }
  const pairs = new Map();
  for (const edge of found.values()) {
    const key = JSON.stringify([edge.left, edge.right]);
    pairs.set(key, [...(pairs.get(key) ?? []), edge]);
  }
  for (const same of pairs.values()) {
    const between = [];
    const [from, to] = [nodes.get(same[0].left), nodes.get(same[0].right)];
    // A line that skips columns gets a place of its own in each, so it doesn't run through others.
    for (let c = from.column + 1; c < to.column; c++) between.push({ column: c, slot: GAP.edge * same.length + 8, width: 0 });
    same.forEach((edge, i) => Object.assign(edge, { from, to, between, bow: (i - (same.length - 1) / 2) * GAP.edge }));
  }
  return [...found.values()];
}

/** Sets the places of all nodes; returns the size of the picture. */
function place(nodes, edges, label) {
  const columns = [];
  const beside = new Map();
  const put = (node) => {
    if (beside.has(node)) return;
    beside.set(node, []);
    (columns[node.column] ??= []).push(node);
  };
  nodes.forEach(put);
  for (const edge of edges) {
    edge.between.forEach(put);
    const chain = [edge.from, ...edge.between, edge.to];
    for (let i = 1; i < chain.length; i++) {
      beside.get(chain[i - 1]).push(chain[i]);
      beside.get(chain[i]).push(chain[i - 1]);
    }
  }
  const stack = (column) => {
    let y = -column.reduce((sum, n) => sum + n.slot, 0) / 2;
    for (const node of column) {
      node.y = y + node.slot / 2;
      y += node.slot;
    }
  };
  columns.forEach(stack);
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  for (let sweep = 0; sweep < 8; sweep++) {
    // Nodes move next to the mean of their neighbours, which removes most crossings.
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const wish = new Map(column.map((node) => [node, beside.get(node).length ? mean(beside.get(node).map((n) => n.y)) : node.y]));
      column.sort((a, b) => wish.get(a) - wish.get(b));
      stack(column);
    }
  }
  const bows = Math.max(...edges.map((e) => Math.abs(e.bow)), 0);
  const tallest = Math.max(...columns.map((c) => c.reduce((sum, n) => sum + n.slot, 0)));
  const height = Math.max(tallest - GAP.y + 2 * MARGIN, NODE.height + 2 * (bows + LABEL.height + MARGIN));
  let x = MARGIN;
  columns.forEach((column, i) => {
    const width = Math.max(...column.map((n) => (n.name ? n.width + 2 * NODE.pad : 0)));
    for (const node of column) Object.assign(node, { w: node.name ? node.width + 2 * NODE.pad : width, x: x + width / 2, y: node.y + height / 2 });
    const crossing = edges.filter((e) => e.from.column === i && e.to.column === i + 1);
    const widest = Math.max(...crossing.map((e) => fitted(label(e.relation), LABEL.most, LABEL.size).width), 0);
    x += width + (i < columns.length - 1 ? widest + GAP.x : 0);
  });
  return { width: Math.ceil(x + MARGIN), height: Math.ceil(height) };
}

function line(edge, most, label, colours) {
  const { from, to, bow } = edge;
  const width = edge.leftOut ? 1.5 : 1.5 + 4 * (Math.abs(edge.effect) / most);
  const kind = edge.leftOut ? "faint" : edge.effect < 0 ? "against" : "for";
  const port = Math.max(-9, Math.min(9, bow / 3)); // parallel lines leave a node side by side
  const start = [from.x + from.w / 2 + (edge.back ? HEAD : 0), from.y + port];
  let pieces;
  if (from.column === to.column) {
    const x = Math.max(from.x + from.w / 2, to.x + to.w / 2) + GAP.x / 2 + Math.abs(bow);
    const end = [to.x + to.w / 2 + (edge.along ? HEAD : 0), to.y + port];
    pieces = [[start, [x, start[1]], [x, end[1]], end]];
  } else {
    const end = [to.x - to.w / 2 - (edge.along ? HEAD : 0), to.y + port];
    const stops = edge.between.flatMap((n) => [[n.x - n.w / 2, n.y + bow], [n.x + n.w / 2, n.y + bow]]);
    const all = [start, ...stops, end];
    const lift = stops.length ? 0 : ((bow - port) * 4) / 3; // a cubic curve reaches three quarters of its control points
    pieces = all.slice(1).map((b, i) => {
      const a = all[i];
      const middle = (a[0] + b[0]) / 2;
      return [a, [middle, a[1] + lift], [middle, b[1] + lift], b];
    });
  }
  const text = (p) => p.map((v) => v.toFixed(1)).join(",");
  const d = `M${text(start)}${pieces.map(([, b, c, e]) => `C${text(b)} ${text(c)} ${text(e)}`).join("")}`;
  const dash = { for: null, against: "7 5", faint: "0.1 5" }[kind];
  const mark = `url(#head-${kind})`;
  const path = s("path", { d, fill: "none", stroke: colours[kind], "stroke-width": width.toFixed(1), "stroke-dasharray": dash, "stroke-linecap": kind === "faint" ? "round" : null, "marker-end": edge.along ? mark : null, "marker-start": edge.back ? mark : null });
  const says = { for: "speaks for it", against: "speaks against it", faint: "left out" }[kind];
  const [one, two] = edge.along ? [edge.left, edge.right] : [edge.right, edge.left];
  path.append(s("title", null, `${label(one)} — ${label(edge.relation)} → ${label(two)}${edge.along && edge.back ? ", and back" : ""} (${says})`));
  return { line: path, pieces, kind, ...fitted(label(edge.relation), LABEL.most, LABEL.size) };
}

/** Moves labels along their lines until they cover neither each other nor a node. */
function spread(drawn, nodes) {
  const taken = [...nodes.values()].map((n) => ({ x: n.x, y: n.y, w: n.w, h: NODE.height }));
  for (const d of drawn) {
    // A line that skips a column runs straight there, next to nothing else: the best place.
    const [first, ...others] = d.pieces;
    const tries = [...others.slice(0, 1), first, ...others.slice(1)].flatMap((piece) => [0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72].map((t) => ({ ...curve(piece, t), w: d.width + 6, h: LABEL.height })));
    const overlap = (r) => taken.reduce((sum, o) => sum + Math.max((o.w + r.w) / 2 - Math.abs(o.x - r.x), 0) * Math.max((o.h + r.h) / 2 - Math.abs(o.y - r.y), 0), 0);
    const found = tries.find((r) => !overlap(r)) ?? tries.reduce((best, r) => (overlap(r) < overlap(best) ? r : best));
    taken.push(found);
    d.x = found.x;
    d.y = found.y;
  }
}

function curve([a, b, c, d], t) {
  const u = 1 - t;
  const mix = (i) => u ** 3 * a[i] + 3 * u * u * t * b[i] + 3 * u * t * t * c[i] + t ** 3 * d[i];
  return { x: mix(0), y: mix(1) };
}

function words(d, colours) {
  return s("g", null,
    s("rect", { x: (d.x - d.width / 2 - 2).toFixed(1), y: (d.y - LABEL.height / 2).toFixed(1), width: (d.width + 4).toFixed(1), height: LABEL.height, rx: 3, fill: colours.ground }),
    s("text", { x: d.x.toFixed(1), y: (d.y + 4).toFixed(1), "font-size": LABEL.size, "text-anchor": "middle", fill: d.kind === "faint" ? colours.faint : colours.text }, d.short),
    s("title", null, d.text));
}

function box(node, end, colours) {
  return s("g", null,
    s("rect", { x: (node.x - node.w / 2).toFixed(1), y: node.y - NODE.height / 2, width: node.w.toFixed(1), height: NODE.height, rx: NODE.height / 2, fill: end ? colours.end : colours.node, stroke: end ? colours.end : colours.rim }),
    s("text", { x: node.x.toFixed(1), y: node.y + 4.5, "font-size": NODE.size, "text-anchor": "middle", "font-weight": end ? 600 : 400, fill: end ? colours.endText : colours.text }, node.short),
    s("title", null, node.text));
}

const heads = (colours) =>
  ["for", "against", "faint"].map((kind) =>
    s("marker", { id: `head-${kind}`, viewBox: "0 0 10 10", refX: 1, refY: 5, markerWidth: HEAD, markerHeight: HEAD + 1, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
      s("path", { d: "M0,0 L10,5 L0,10 z", fill: colours[kind] })));

const pen = document.createElement("canvas").getContext("2d");

/** Returns a text, cut if it is wider than `most` pixels, and its width. */
function fitted(text, most, size) {
  pen.font = `600 ${size}px ${FONT}`;
  let short = text;
  while (pen.measureText(short).width > most && short.length > 2) short = `${short.slice(0, -2).trimEnd()}…`;
  return { text, short, width: pen.measureText(short).width };
}

/** A picture as the text of an SVG file. */
export const fileText = (what) => new XMLSerializer().serializeToString(picture(what, PRINT));
