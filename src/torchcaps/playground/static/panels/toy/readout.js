// @ts-check
/** The numbers of the toy: activations, coupling, agreement, logits and poses. */
import { NO_WHOLE, PALETTE } from "../../lib/colors.js";
import { el, svg } from "../../lib/dom.js";
import { explain, term } from "../../lib/glossary.js";
import { gauge } from "../../lib/meter.js";
import { fixed, indices } from "../../lib/numbers.js";
import { linePlot } from "../../lib/plot.js";
import { partName } from "./parts.js";
import { DASHES, shareOfNone } from "./stage.js";

/** @typedef {import("./parts.js").Part} Part */

const shortName = (/** @type {string} */ name) => name.replace(" house", "");
const shortNumber = (/** @type {number} */ value) => (Math.abs(value) >= 100 ? value.toFixed(0) : fixed(value, 1));

export class Readout {
  #onSelect;
  #activations = el("div", { class: "scroll" });
  #verdict = el("p", { class: "small lesson", "aria-live": "polite" });
  #couplingTable = el("div", { class: "scroll" });
  #activationPlot = el("div");
  #couplingPlot = el("div");
  #partTitle = el("h3");
  #partTable = el("div", { class: "scroll" });
  #poseTable = el("div", { class: "scroll" });
  root = el(
    "div",
    { class: "card readout" },
    el("h2", {}, explain("[[activation|Activation]] of each [[whole]]")),
    this.#activations,
    this.#verdict,
    el("h2", { class: "later" }, explain("[[coupling|Coupling]] of each [[part]]")),
    this.#couplingTable,
    el("div", { class: "curves later" }, this.#activationPlot, this.#couplingPlot),
    el(
      "details",
      { class: "numbers" },
      el("summary", {}, "All numbers of the selected part and of the wholes"),
      this.#partTitle,
      this.#partTable,
      el("h3", {}, "Pose of each whole"),
      this.#poseTable,
    ),
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
   * @param {string} lesson What the scene shows.
   */
  show(response, at, parts, selected, lesson) {
    const { wholes, iterations } = response;
    const iteration = iterations[at];
    this.#verdict.replaceChildren(...explain(lesson));
    this.#activations.replaceChildren(makeActivationTable(wholes, iteration));
    this.#couplingTable.replaceChildren(this.#makeCouplingTable(wholes, iteration, parts, selected));
    this.#partTitle.textContent = partName(parts, selected);
    this.#partTable.replaceChildren(makePartTable(response, at, selected));
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
    const rows = parts.map((_, i) => {
      const shares = iteration.coupling[i];
      const select = el(
        "button",
        { type: "button", class: "link", onclick: () => this.#onSelect(i) },
        partName(parts, i),
      );
      return el(
        "tr",
        { class: i === selected ? "is-selected" : "", onclick: () => this.#onSelect(i) },
        el("th", { scope: "row" }, select),
        [...shares, shareOfNone(shares)].map((share, j) => shareCell(share, PALETTE[j], j === shares.length)),
      );
    });
    return table(["part", ...wholes.map(({ name }) => shortName(name)), term("no whole")], rows, "coupling-table");
  }
}

/**
 * @param {number} share
 * @param {string} color
 * @param {boolean} isNone
 */
function shareCell(share, color, isNone) {
  const number = el("b", { class: isNone ? "none" : "coupling" }, fixed(share));
  return el("td", {}, el("div", { class: "share" }, gauge(share, isNone ? NO_WHOLE : color, "thin"), number));
}

/**
 * The activation of each whole by agreement, and that of a detector with max-pooling.
 *
 * @param {Api.ToyWhole[]} wholes
 * @param {Api.ToyIteration} iteration
 */
function makeActivationTable(wholes, { activations }) {
  const rows = wholes.map(({ name, pooled }, j) => {
    const line = { x1: 1, x2: 21, y1: 4, y2: 4, "stroke-width": 3, stroke: PALETTE[j], "stroke-dasharray": DASHES[j] };
    const swatch = svg("svg", { viewBox: "0 0 22 8", class: "swatch", "aria-hidden": "true" }, svg("line", line));
    const cell = (/** @type {number} */ value, /** @type {string} */ color, /** @type {string} */ kind) =>
      el(
        "td",
        {},
        el("div", { class: "share" }, gauge(value, color), el("b", { class: `number ${kind}` }, fixed(value))),
      );
    return el(
      "tr",
      { "data-whole": name },
      el("th", { scope: "row" }, swatch, name),
      cell(activations[j], PALETTE[j], "activation"),
      cell(pooled, NO_WHOLE, "pooled"),
    );
  });
  return table(["", term("agreement", "routing by agreement"), term("max-pooling", "max-pooling detector")], rows);
}

/**
 * @param {Api.ToyResponse} response
 * @param {number} at
 * @param {number} i
 */
function makePartTable({ wholes, votes, iterations }, at, i) {
  const { coupling, agreement, logits } = iterations[at];
  const rows = wholes.map(({ name }, j) => {
    const { x, y, angle, size } = votes[i][j];
    const vote = `${fixed(x, 1)}, ${fixed(y, 1)}, ${Math.round(angle)}°, ×${fixed(size)}`;
    const texts = [fixed(coupling[i][j]), fixed(agreement[i][j]), shortNumber(logits[i][j]), vote];
    return tableRow(shortName(name), texts);
  });
  const header = ["", term("coupling"), term("agreement"), term("logit"), term("vote", "vote: x, y, angle, size")];
  return table(header, rows);
}

/**
 * @param {Api.ToyWhole[]} wholes
 * @param {Api.ToyIteration} iteration
 */
function makePoseTable(wholes, { poses }) {
  const rows = wholes.map(({ name }, j) => {
    const { x, y, angle, size } = poses[j];
    return tableRow(shortName(name), [fixed(x), fixed(y), `${Math.round(angle)}°`, fixed(size)]);
  });
  return table(["whole", "x", "y", "angle", "size"], rows);
}

/**
 * @param {string} name
 * @param {string[]} texts
 */
function tableRow(name, texts) {
  const cells = texts.map((text) => el("td", {}, text));
  return el("tr", {}, el("th", { scope: "row" }, name), cells);
}

/**
 * @param {import("../../lib/dom.js").Child[]} header
 * @param {HTMLTableRowElement[]} rows
 * @param {string} [kind] Class of the table.
 */
function table(header, rows, kind = "") {
  const cells = header.map((text) => el("th", { scope: "col" }, text));
  return el("table", { class: kind }, el("thead", {}, el("tr", {}, cells)), el("tbody", {}, rows));
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
    height: 116,
    labels: { x: "iteration", y: label },
    title: `${label} by iteration`,
  });
}
