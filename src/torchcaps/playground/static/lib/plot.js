// @ts-check
/** Small line plots. */
import { PALETTE } from "./colors.js";
import { el, svg } from "./dom.js";
import { clamp, indices } from "./numbers.js";

/**
 * @typedef {object} Series One line.
 * @property {number[]} values
 * @property {string} [label] Name in the tooltip and the legend.
 * @property {string} [color]
 * @property {string} [dash]
 * @property {number} [width]
 * @property {boolean} [legend] False leaves the line out of the legend.
 */

/**
 * @typedef {object} PlotOptions
 * @property {Series[]} series
 * @property {string} title Description for screen readers.
 * @property {number[]} [x] Positions of the values; 0, 1, 2, ... by default.
 * @property {{ x?: string, y?: string | HTMLElement }} [labels]
 * @property {import("./numbers.js").Range} [yRange] The y axis; by default from 0 or below to the largest value.
 * @property {number} [minSpan] Fit the y axis to the values, with at least this difference of its ends.
 * @property {number} [mark] Position of a vertical line.
 * @property {number} [height] In pixels.
 */

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Box */

/** @type {WeakMap<Element, { width: number, options: PlotOptions }>} */
const plots = new WeakMap();

// Drawn as wide as their parent, so that the text has the same size in all plots, and again when that changes.
const resizeObserver = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const plot = plots.get(target);
    const width = Math.round(contentRect.width);
    if (!plot || !width || width === plot.width) continue;
    plot.width = width;
    requestAnimationFrame(() => draw(target));
  }
});

/**
 * Draw a line plot.
 *
 * @param {HTMLElement} root
 * @param {PlotOptions} options
 */
export function linePlot(root, options) {
  if (!plots.has(root)) resizeObserver.observe(root);
  plots.set(root, { width: plots.get(root)?.width ?? root.clientWidth, options });
  draw(root);
}

/** @param {Element} root */
function draw(root) {
  const plot = plots.get(root);
  if (!plot) return;
  const { series, labels = {}, mark, title, height = 140 } = plot.options;
  // A hidden plot has no width yet.
  const width = plot.width || 300;
  const lines = series.map((line, n) => ({ ...line, color: line.color ?? PALETTE[n % PALETTE.length] }));
  const x = plot.options.x ?? indices(Math.max(2, ...lines.map((line) => line.values.length)));
  const axis = yAxis(plot.options);
  const box = {
    left: 10 + 7 * Math.max(3, ...axis.texts.map((text) => text.length)),
    right: width - 10,
    top: 8,
    bottom: height - (labels.x ? 32 : 20),
  };
  const toX = scale([x[0], x[x.length - 1]], [box.left, box.right]);
  const toY = scale(axis.range, [box.bottom, box.top]);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": title });
  picture.append(...yTicks(axis, box, toY), ...xTicks(x, box, toX));
  if (labels.x) picture.append(xLabel(labels.x, box, height));
  if (mark !== undefined) {
    picture.append(svg("line", { x1: toX(mark), x2: toX(mark), y1: box.top, y2: box.bottom, class: "mark" }));
  }
  for (const line of lines) picture.append(...lineMarks(line, x, toX, (value) => toY(clamp(value, axis.range))));
  root.replaceChildren(picture);
  const named = lines.filter((line) => line.label && line.legend !== false);
  if (named.length > 1) root.append(legend(named));
  if (labels.y) root.prepend(el("div", { class: "plot-name" }, labels.y));
}

/**
 * Range, ticks and their texts, with as many digits as distinguish the ticks.
 *
 * @param {PlotOptions} options
 */
function yAxis({ series, yRange, minSpan }) {
  const values = series.flatMap((line) => line.values).filter(Number.isFinite);
  const range = yRange ?? (minSpan === undefined ? rangeFromZero(values) : fittedRange(values, minSpan));
  const [low, high] = range;
  const ticks = [low, (low + high) / 2, high];
  const decimals = Math.max(0, 1 + Math.ceil(-Math.log10(high - low)));
  return { range, ticks, texts: ticks.map((value) => String(Number(value.toFixed(decimals)))) };
}

/**
 * @param {number[]} values
 * @returns {[number, number]}
 */
function rangeFromZero(values) {
  const low = Math.min(0, ...values);
  const high = Math.max(1e-9, ...values);
  return [low, high - low < 1e-6 ? low + 1 : high];
}

/**
 * @param {number[]} values
 * @param {number} minSpan
 * @returns {[number, number]}
 */
function fittedRange(values, minSpan) {
  const high = Math.max(...values);
  return [Math.min(...values, high - minSpan), high];
}

/**
 * A linear map from one range to another.
 *
 * @param {import("./numbers.js").Range} from
 * @param {import("./numbers.js").Range} to
 */
function scale([first, last], [start, end]) {
  const span = last === first ? 1 : last - first;
  return (/** @type {number} */ value) => start + ((value - first) / span) * (end - start);
}

/**
 * @param {ReturnType<typeof yAxis>} axis
 * @param {Box} box
 * @param {(value: number) => number} toY
 */
function yTicks({ ticks, texts }, box, toY) {
  return ticks.flatMap((value, n) => [
    svg("line", { x1: box.left, x2: box.right, y1: toY(value), y2: toY(value), class: "grid" }),
    svg("text", { x: box.left - 5, y: toY(value) + 4, "text-anchor": "end", class: "tick" }, texts[n]),
  ]);
}

/**
 * @param {number[]} x
 * @param {Box} box
 * @param {(value: number) => number} toX
 */
function xTicks(x, box, toX) {
  const ticks = new Set([x[0], x[(x.length - 1) >> 1], x[x.length - 1]]);
  return [...ticks].map((value) => {
    // The first text starts at the axis, away from the lowest text of the y axis.
    const anchor = value === x[0] ? "start" : "middle";
    return svg("text", { x: toX(value), y: box.bottom + 14, "text-anchor": anchor }, shortNumber(value));
  });
}

/** @param {number} value */
function shortNumber(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(2)));
}

/**
 * @param {string} text
 * @param {Box} box
 * @param {number} height
 */
function xLabel(text, { left, right }, height) {
  return svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle", class: "label" }, text);
}

/**
 * A line, with a dot at each of a few values.
 *
 * @param {Series} line
 * @param {number[]} x
 * @param {(value: number) => number} toX
 * @param {(value: number) => number} toY
 */
function lineMarks({ values, label, color, dash, width = 2 }, x, toX, toY) {
  const points = values.map((value, n) => [toX(x[n]), toY(value)]).filter((point) => point.every(Number.isFinite));
  const path = svg(
    "polyline",
    {
      points: points.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" "),
      fill: "none",
      stroke: color,
      "stroke-width": width,
      "stroke-dasharray": dash,
      "stroke-linejoin": "round",
    },
    label && svg("title", {}, label),
  );
  const dots = points.length > 12 ? [] : points.map(([cx, cy]) => svg("circle", { cx, cy, r: 2.4, fill: color }));
  return [path, ...dots];
}

/** @param {Series[]} lines */
function legend(lines) {
  const key = (/** @type {Series} */ { dash, color }) =>
    el("i", { class: dash ? "dashed" : "", style: { "border-top-color": color } });
  return el(
    "div",
    { class: "legend" },
    lines.map((line) => el("span", {}, key(line), line.label)),
  );
}
