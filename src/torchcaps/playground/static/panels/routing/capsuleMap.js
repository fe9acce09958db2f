// @ts-check
/** The primary capsules on top of the image, in the colour of their coupling to the selected class. */
import { ratioColor } from "../../lib/colors.js";
import { el, svg } from "../../lib/dom.js";
import { paintImage } from "../../lib/images.js";

export class CapsuleMap {
  /** @type {SVGCircleElement[]} */
  #dots = [];
  /** @type {number[][]} Coupling by iteration. */
  #coupling = [];
  #numClasses = 1;
  #image = el("canvas");
  #layer = svg("svg", { class: "dots", viewBox: "0 0 1 1", "aria-hidden": "true" });
  #caption = el("p", { class: "small muted caption" });
  root = el(
    "div",
    { class: "card side" },
    el("div", { class: "tile layered" }, this.#image, this.#layer),
    this.#caption,
  );

  /**
   * @param {import("../../lib/images.js").Images} image
   * @param {Api.TraceResponse} response
   * @param {string[]} classes
   */
  show(image, response, classes) {
    const { present, rows, columns, types, parent, traces } = response;
    paintImage(this.#image, image);
    this.#coupling = traces[0].coupling;
    this.#numClasses = classes.length;
    this.#dots = makeDots(response);
    this.#layer.replaceChildren(...this.#dots);
    const which = traces.length > 1 ? " by the first router" : "";
    this.#caption.textContent =
      `${present.length} primary capsules: ${rows} × ${columns} positions with ${types} types each, at the ` +
      `centre of their receptive fields. Coupling to ${classes[parent]}${which}: blue is more than uniform, ` +
      "orange is less.";
  }

  /** @param {number} at */
  showIteration(at) {
    const coupling = this.#coupling[Math.min(at, this.#coupling.length - 1)];
    this.#dots.forEach((dot, n) => dot.setAttribute("fill", ratioColor(coupling[n] * this.#numClasses)));
  }
}

/**
 * The types of a position are in a small square about its centre.
 *
 * @param {Api.TraceResponse} response
 */
function makeDots({ present, places, types }) {
  const side = Math.ceil(Math.sqrt(types));
  const cell = (0.92 * smallestDistance(places)) / side;
  const offset = (/** @type {number} */ n) => (n - (side - 1) / 2) * cell;
  return present.map((activation, n) => {
    const position = Math.floor(n / types);
    const type = n % types;
    const [row, column] = places[position];
    const radius = cell * 0.42 * Math.sqrt(Math.max(activation, 0.02));
    const text = `position ${position + 1}, type ${type + 1}, activation ${activation.toFixed(2)}`;
    const center = { cx: column + offset(type % side), cy: row + offset(Math.floor(type / side)) };
    return svg("circle", { ...center, r: radius }, svg("title", {}, text));
  });
}

/** @param {number[][]} places */
function smallestDistance(places) {
  const distances = places.flatMap(([row, column], n) =>
    places.slice(n + 1).map(([r, c]) => Math.max(Math.abs(r - row), Math.abs(c - column))),
  );
  const positive = distances.filter((distance) => distance > 1e-6);
  return positive.length ? Math.min(...positive) : 0.9;
}
