// @ts-check
/** The numbers of the toy: activations, coupling, agreement, logits and poses. */
import { PALETTE } from "../../lib/colors.js";
import { el, svg } from "../../lib/dom.js";
import { meter, gauge } from "../../lib/meter.js";
import { fixed, indices } from "../../lib/numbers.js";
import { linePlot } from "../../lib/plot.js";
import { partName } from "./parts.js";
import { DASHES } from "./stage.js";

/** @typedef {import("./parts.js").Part} Part */

const CELL_HINT = "agreement: dot product of vote and pose; logit: input of the softmax over wholes";
const SYMBOLS = { triangle: "△", rectangle: "▭" };

const shortName = (/** @type {string} */ name) => name.replace(" house", "");
const shortNumber = (/** @type {number} */ value) => (Math.abs(value) >= 100 ? value.toFixed(0) : fixed(value, 1));

export class Readout {
  #onSelect;
  #meters = el("div", { class: "meters" });
  #activationPlot = el("div");
  #couplingTable = el("div", { class: "scroll" });
  #couplingPlot = el("div");
  #poseTable = el("div", { class: "scroll" });
  root = el(
    "div",
    { class: "card" },
    el("h2", {}, "Activation of each whole"),
    this.#meters,
    this.#activationPlot,
    el("h2", { class: "later" }, "Coupling of each part, with agreement and logit"),
    this.#couplingTable,
    this.#couplingPlot,
    el("h2", { class: "later" }, "Pose of each whole"),
    this.#poseTable,
  );

  /** @param {(n: number) => void} onSelect Called when a row of a part is clicked. */
  constructor(onSelect) {
    this.#onSelect = onSelect;
  }

  /**
   * @param {Api.ToyResponse} response
   * @param {number} at
   * @param {Part[]} parts
   * @param {number} selected
   */
  show(response, at, parts, selected) {
    const { wholes, iterations } = response;
    const iteration = iterations[at];
    this.#meters.replaceChildren(...wholes.map(({ name }, j) => wholeMeter(name, iteration.activations[j], j)));
    this.#couplingTable.replaceChildren(this.#makeCouplingTable(wholes, iteration, parts, selected));
    this.#poseTable.replaceChildren(makePoseTable(wholes, iteration));
    plot(this.#activationPlot, response, at, "activation", ({ activations }) => activations);
    const title = `coupling of ${partName(parts, selected)}`;
    plot(this.#couplingPlot, response, at, title, ({ coupling }) => coupling[selected]);
  }

  /**
   * @param {Api.ToyWhole[]} wholes
   * @param {Api.ToyIteration} iteration
   * @param {Part[]} parts
   * @param {number} selected
   */
  #makeCouplingTable(wholes, iteration, parts, selected) {
    const rows = parts.map((part, i) => {
      const name = partName(parts, i);
      const header = el("th", { scope: "row", "aria-label": name, title: name }, `${SYMBOLS[part.kind]} ${i + 1}`);
      const attributes = { class: i === selected ? "is-selected" : "", onclick: () => this.#onSelect(i) };
      return el(
        "tr",
        attributes,
        header,
        wholes.map((_, j) => couplingCell(iteration, i, j)),
      );
    });
    return table(["part", ...wholes.map(({ name }) => shortName(name))], rows);
  }
}

/**
 * @param {Api.ToyIteration} iteration
 * @param {number} i
 * @param {number} j
 */
function couplingCell({ coupling, agreement, logits }, i, j) {
  return el(
    "td",
    {},
    gauge(coupling[i][j], PALETTE[j], "thin"),
    el("b", { class: "coupling" }, fixed(coupling[i][j])),
    el("small", { title: CELL_HINT }, `${fixed(agreement[i][j])} · ${shortNumber(logits[i][j])}`),
  );
}

/**
 * @param {string} name
 * @param {number} activation
 * @param {number} j
 */
function wholeMeter(name, activation, j) {
  const line = { x1: 1, x2: 21, y1: 4, y2: 4, "stroke-width": 3, stroke: PALETTE[j], "stroke-dasharray": DASHES[j] };
  const swatch = svg("svg", { viewBox: "0 0 22 8", class: "swatch", "aria-hidden": "true" }, svg("line", line));
  return meter([swatch, name], activation, PALETTE[j], { "data-whole": name });
}

/**
 * @param {Api.ToyWhole[]} wholes
 * @param {Api.ToyIteration} iteration
 */
function makePoseTable(wholes, { poses }) {
  const rows = wholes.map(({ name }, j) => {
    const { x, y, angle, size } = poses[j];
    const texts = [fixed(x), fixed(y), `${Math.round(angle)}°`, fixed(size)];
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, shortName(name)),
      texts.map((text) => el("td", {}, text)),
    );
  });
  return table(["whole", "x", "y", "angle", "size"], rows);
}

/**
 * @param {string[]} header
 * @param {HTMLTableRowElement[]} rows
 */
function table(header, rows) {
  const cells = header.map((text) => el("th", { scope: "col" }, text));
  return el("table", {}, el("thead", {}, el("tr", {}, cells)), el("tbody", {}, rows));
}

/**
 * @param {HTMLElement} root
 * @param {Api.ToyResponse} response
 * @param {number} at
 * @param {string} label
 * @param {(iteration: Api.ToyIteration) => number[]} values
 */
function plot(root, { wholes, iterations }, at, label, values) {
  const series = wholes.map(({ name }, j) => ({
    values: iterations.map((iteration) => values(iteration)[j]),
    color: PALETTE[j],
    dash: DASHES[j],
    label: name,
    legend: false,
  }));
  linePlot(root, {
    series,
    x: indices(iterations.length).map((n) => n + 1),
    yRange: [0, 1],
    mark: at + 1,
    labels: { x: "iteration", y: label },
    title: `${label} by iteration`,
  });
}
