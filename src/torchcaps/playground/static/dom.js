// Small helpers for elements and plots.

// After Okabe and Ito, made to hold on dark and on light ground; told apart also with the usual colour blindnesses.
export const palette = [
  "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#A89200", "#8C4B9E", "#8A8A8A", "#1B9AAA",
];

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set([
  "svg", "g", "path", "line", "polyline", "polygon", "circle", "ellipse", "rect", "text", "tspan", "defs", "title",
  "marker", "clipPath", "linearGradient", "stop", "use",
]);

// An element: attributes by name, `on...` for listeners, `style` as an object, `class`, booleans; then its children.
export function el(tag, attrs = {}, ...children) {
  const svg = SVG_TAGS.has(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (!svg && ["value", "checked", "disabled", "tabIndex", "innerText"].includes(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const short = (value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  return String(Number(value.toPrecision(2)));
};

// Plots are drawn as wide as there is room, so that their words are as large in all of them, and anew when that changes.
const plots = new WeakMap();
const rooms = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const plot = plots.get(target);
    if (Math.round(contentRect.width) === plot.width || !contentRect.width) continue;
    plot.width = Math.round(contentRect.width);
    requestAnimationFrame(() => drawPlot(target, plots.get(target)));
  }
});

// A small line plot in `root`. series: [{values, label?, color?, dash?, width?}] or arrays of numbers; x: numbers at the
// points (0, 1, 2, ... if none); labels: {x, y} words at the axes; yRange: [low, high], or fit: the axis goes from the
// least to the largest value and at least that far; mark: an x where a line stands; height in pixels; title: what it
// shows, for those who cannot see it.
export function linePlot(root, options) {
  const plot = { width: plots.get(root)?.width ?? root.clientWidth, options };
  if (!plots.has(root)) rooms.observe(root);
  plots.set(root, plot);
  drawPlot(root, plot);
}

function rangeOf(values, fit) {
  const high = Math.max(...values, fit ? -Infinity : 1e-9);
  if (fit) return [Math.min(...values, high - fit), high];
  const low = Math.min(0, ...values);
  return [low, high - low < 1e-6 ? low + 1 : high];
}

function drawPlot(root, { width: room, options: { series, x, labels = {}, yRange, fit, mark, title, height = 140 } }) {
  // A plot that nobody sees yet has no room.
  const width = room || 300;
  const lines = series.map((one, n) => ({
    color: palette[n % palette.length], ...(Array.isArray(one) ? { values: one } : one),
  }));
  const count = Math.max(2, ...lines.map((line) => line.values.length));
  const xs = x ?? Array.from({ length: count }, (_, n) => n);
  const every = lines.flatMap((line) => line.values).filter(Number.isFinite);
  const [low, high] = yRange ?? rangeOf(every, fit);
  const ticks = [low, (low + high) / 2, high];
  // As many digits as tell the ends apart, and the middle from them.
  const decimals = Math.max(0, 1 + Math.ceil(-Math.log10(high - low)));
  const words = ticks.map((value) => String(Number(value.toFixed(decimals))));
  const box = {
    left: 10 + 7 * Math.max(3, ...words.map((word) => word.length)), right: width - 10, top: 8, bottom: height - (labels.x ? 32 : 20),
  };
  const first = xs[0];
  const last = xs[xs.length - 1] === first ? first + 1 : xs[xs.length - 1];
  const px = (value) => box.left + (value - first) / (last - first) * (box.right - box.left);
  const py = (value) => box.bottom - (Math.min(high, Math.max(low, value)) - low) / (high - low) * (box.bottom - box.top);
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": title ?? labels.y });
  ticks.forEach((value, n) => svg.append(
    el("line", { x1: box.left, x2: box.right, y1: py(value), y2: py(value), class: "grid" }),
    el("text", { x: box.left - 5, y: py(value) + 4, "text-anchor": "end", class: "tick" }, words[n]),
  ));
  for (const value of new Set([first, xs[(xs.length - 1) >> 1], last])) {
    if (!xs.includes(value)) continue;
    // The first begins at the axis, so that it does not run into the lowest number beside it.
    svg.append(el("text", { x: px(value), y: box.bottom + 14, "text-anchor": value === first ? "start" : "middle" }, short(value)));
  }
  if (labels.x) svg.append(el("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle", class: "label" }, labels.x));
  if (mark !== undefined && mark !== null) {
    svg.append(el("line", { x1: px(mark), x2: px(mark), y1: box.top, y2: box.bottom, class: "mark" }));
  }
  for (const line of lines) {
    const points = line.values.map((value, n) => [px(xs[n]), py(value)]).filter((point) => point.every(Number.isFinite));
    svg.append(el("polyline", {
      points: points.map((point) => point.map((p) => p.toFixed(1)).join(",")).join(" "), fill: "none",
      stroke: line.color, "stroke-width": line.width ?? 2, "stroke-dasharray": line.dash, "stroke-linejoin": "round",
    }, line.label ? el("title", {}, line.label) : null));
    if (points.length <= 12) for (const [cx, cy] of points) svg.append(el("circle", { cx, cy, r: 2.4, fill: line.color }));
  }
  root.replaceChildren(svg);
  const named = lines.filter((line) => line.label && line.legend !== false);
  if (named.length > 1) {
    root.append(el("div", { class: "legend" }, named.map((line) => el("span", {},
      el("i", { class: line.dash ? "dashed" : "", style: { "border-top-color": line.color } }), line.label))));
  }
  if (labels.y) root.prepend(el("div", { class: "plot-name" }, labels.y));
}
