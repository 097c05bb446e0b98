/** Draws the paths between two entities: head left, tail right, shared entities merged. */

import { s } from "./dom.js";

const FONT = "system-ui, sans-serif";
const NODE = { height: 28, pad: 12, most: 190, size: 13 };
const LABEL = { size: 11, height: 16, most: 150 };
const GAP = { x: 46, y: 40, edge: 26 };
const MARGIN = 12;

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
  const edges = joined(walks);
  const size = place(nodes, edges, label);
  const most = Math.max(...walks.map((p) => Math.abs(p.effect)), 1e-9);
  const drawn = edges.map((edge) => line(edge, nodes, most, label, colours));
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

/** Gives every entity a column; the first, strongest path through it decides. */
function arrange(head, tail, walks, label) {
  const longest = Math.max(...walks.map((p) => p.names.length - 1), 1);
  const nodes = new Map();
  const add = (name, column) => {
    if (!nodes.has(name)) nodes.set(name, { name, column, order: nodes.size, ...fitted(label(name), NODE.most, NODE.size) });
  };
  add(head, 0);
  add(tail, longest);
  for (const { names } of walks) {
    const hops = names.length - 1;
    names.slice(1, -1).forEach((name, i) => add(name, Math.min(Math.max(Math.round(((i + 1) * longest) / hops), 1), longest - 1)));
  }
  return nodes;
}

/** One edge per fact, as strong as the strongest path through it. */
function joined(walks) {
  const edges = new Map();
  for (const { steps, effect, leftOut } of walks) {
    for (const [h, relation, t] of steps) {
      const key = JSON.stringify([h, relation, t]);
      const old = edges.get(key);
      if (!old) edges.set(key, { head: h, relation, tail: t, effect, leftOut });
      else {
        // A fact is still in use while any path through it is.
        if (old.leftOut && !leftOut) Object.assign(old, { effect, leftOut });
        else if (old.leftOut === leftOut && Math.abs(effect) > Math.abs(old.effect)) old.effect = effect;
      }
    }
  }
  const pairs = new Map();
  for (const edge of edges.values()) {
    const key = JSON.stringify([edge.head, edge.tail].sort());
    pairs.set(key, [...(pairs.get(key) ?? []), edge]);
  }
  for (const same of pairs.values()) same.forEach((edge, i) => (edge.bow = (i - (same.length - 1) / 2) * GAP.edge));
  return [...edges.values()];
}

/** Sets the places of all nodes; returns the size of the picture. */
function place(nodes, edges, label) {
  const columns = [];
  for (const node of nodes.values()) (columns[node.column] ??= []).push(node);
  const beside = (node) => edges.flatMap((e) => (e.head === node.name ? [nodes.get(e.tail)] : e.tail === node.name ? [nodes.get(e.head)] : []));
  const rank = () => columns.forEach((column) => column?.forEach((n, i) => (n.row = i - (column.length - 1) / 2)));
  rank();
  for (let sweep = 0; sweep < 4; sweep++) {
    // Nodes move next to the mean of their neighbours, which removes most crossings.
    for (const column of columns.filter(Boolean)) {
      for (const node of column) {
        const rows = beside(node).map((n) => n.row);
        node.wish = rows.length ? rows.reduce((a, b) => a + b, 0) / rows.length : node.row;
      }
      column.sort((a, b) => a.wish - b.wish || a.order - b.order);
    }
    rank();
  }
  const step = NODE.height + GAP.y;
  const tallest = Math.max(...columns.map((c) => c?.length ?? 0));
  const bows = Math.max(...edges.map((e) => Math.abs(e.bow)), 0);
  const height = Math.max((tallest - 1) * step + NODE.height + 2 * (MARGIN + bows), 110);
  let x = MARGIN;
  columns.forEach((column, i) => {
    if (!column) return;
    const width = Math.max(...column.map((n) => n.width)) + 2 * NODE.pad;
    for (const node of column) {
      node.w = node.width + 2 * NODE.pad;
      node.x = x + width / 2;
      node.y = height / 2 + node.row * step;
    }
    const crossing = edges.filter((e) => Math.min(nodes.get(e.head).column, nodes.get(e.tail).column) === i && nodes.get(e.head).column !== nodes.get(e.tail).column);
    const widest = Math.max(...crossing.map((e) => fitted(label(e.relation), LABEL.most, LABEL.size).width), 0);
    x += width + (i < columns.length - 1 ? widest + GAP.x : 0);
  });
  return { width: Math.ceil(x + MARGIN), height: Math.ceil(height) };
}

function line(edge, nodes, most, label, colours) {
  const from = nodes.get(edge.head);
  const to = nodes.get(edge.tail);
  const turn = Math.sign(to.x - from.x);
  const width = edge.leftOut ? 1 : 1.5 + 4 * (Math.abs(edge.effect) / most);
  const kind = edge.leftOut ? "faint" : edge.effect < 0 ? "against" : "for";
  const room = 3; // between an arrow and its node
  let points;
  if (turn === 0) {
    const x = from.x + Math.max(from.w, to.w) / 2 + 26 + Math.abs(edge.bow);
    points = [[from.x + from.w / 2, from.y], [x, from.y], [x, to.y], [to.x + to.w / 2 + room, to.y]];
  } else {
    const start = [from.x + (turn * from.w) / 2, from.y];
    const end = [to.x - turn * (to.w / 2 + room), to.y];
    const mid = (start[0] + end[0]) / 2;
    const lift = (edge.bow * 4) / 3; // a cubic curve reaches three quarters of its control points
    points = [start, [mid, start[1] + lift], [mid, end[1] + lift], end];
  }
  const [a, b, c, d] = points.map((p) => p.map((v) => v.toFixed(1)).join(","));
  const dash = { for: null, against: "7 5", faint: "1 4" }[kind];
  const path = s("path", { d: `M${a} C${b} ${c} ${d}`, fill: "none", stroke: colours[kind], "stroke-width": width.toFixed(1), "stroke-dasharray": dash, "stroke-linecap": kind === "faint" ? "round" : null, "marker-end": `url(#head-${kind})` });
  const says = { for: "speaks for it", against: "speaks against it", faint: "left out" }[kind];
  path.append(s("title", null, `${label(edge.head)} — ${label(edge.relation)} → ${label(edge.tail)} (${says})`));
  return { line: path, points, kind, ...fitted(label(edge.relation), LABEL.most, LABEL.size) };
}

/** Moves labels along their lines until they cover neither each other nor a node. */
function spread(drawn, nodes) {
  const taken = [...nodes.values()].map((n) => ({ x: n.x, y: n.y, w: n.w, h: NODE.height }));
  for (const d of drawn) {
    const at = (t) => ({ ...curve(d.points, t), w: d.width + 6, h: LABEL.height });
    const free = (r) => !taken.some((o) => Math.abs(o.x - r.x) < (o.w + r.w) / 2 && Math.abs(o.y - r.y) < (o.h + r.h) / 2);
    const found = [0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72].map(at).find(free) ?? at(0.5);
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
  return s("text", { x: d.x.toFixed(1), y: (d.y + 4).toFixed(1), "font-size": LABEL.size, "text-anchor": "middle", fill: d.kind === "faint" ? colours.faint : colours.text, stroke: colours.ground, "stroke-width": 4, "stroke-linejoin": "round", "paint-order": "stroke" }, d.short, s("title", null, d.text));
}

function box(node, end, colours) {
  return s("g", null,
    s("rect", { x: (node.x - node.w / 2).toFixed(1), y: node.y - NODE.height / 2, width: node.w.toFixed(1), height: NODE.height, rx: NODE.height / 2, fill: end ? colours.end : colours.node, stroke: end ? colours.end : colours.rim }),
    s("text", { x: node.x.toFixed(1), y: node.y + 4.5, "font-size": NODE.size, "text-anchor": "middle", "font-weight": end ? 600 : 400, fill: end ? colours.endText : colours.text }, node.short),
    s("title", null, node.text));
}

const heads = (colours) =>
  ["for", "against", "faint"].map((kind) =>
    s("marker", { id: `head-${kind}`, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" },
      s("path", { d: "M0,0.5 L10,5 L0,9.5 z", fill: colours[kind] })));

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
