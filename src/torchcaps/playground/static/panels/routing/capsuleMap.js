// @ts-check
/** The primary capsules on top of the image: their coupling to the selected class, relevance and receptive fields. */
import { ratioColor, RATIO_LIMIT } from "../../lib/colors.js";
import { el, pointerPosition, setAttributes, svg } from "../../lib/dom.js";
import { explain, term } from "../../lib/glossary.js";
import { paintImage } from "../../lib/images.js";
import { clamp } from "../../lib/numbers.js";

/** @typedef {"coupling" | "relevance"} Mode */

/** Width of a dot below which positions are coloured instead, as a share of the image. */
const SMALLEST_DOT = 0.018;

export class CapsuleMap {
  /** @type {SVGCircleElement[]} */
  #dots = [];
  /** @type {SVGRectElement[]} One for each position. */
  #cells = [];
  /** @type {Api.TraceResponse | null} */
  #response = null;
  /** @type {Mode} */
  #mode = "coupling";
  #at = 0;
  #focus = 0;
  #numClasses = 1;
  #image = el("canvas");
  #field = svg("rect", { class: "field-box", visibility: "hidden" });
  #marks = svg("g");
  #layer = svg(
    "svg",
    {
      class: "dots",
      viewBox: "0 0 1 1",
      tabindex: 0,
      role: "img",
      "aria-label": "Primary capsules on the image. Arrow keys move between positions and show their receptive fields.",
      onpointermove: (/** @type {PointerEvent} */ event) => this.#showNearest(event),
      onpointerleave: () => this.#hideField(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
      onfocus: () => this.#showField(this.#focus),
      onblur: () => this.#hideField(),
    },
    this.#marks,
    this.#field,
  );
  #caption = el("p", { class: "small muted caption" });
  #fieldText = el("p", { class: "small muted field-text", "aria-live": "polite" });
  #legend = el("div", { class: "scale-legend small muted" });
  #modes = /** @type {Mode[]} */ (["coupling", "relevance"]).map((mode) =>
    el(
      "button",
      { type: "button", class: "small", "data-mode": mode, onclick: () => this.#setMode(mode) },
      mode === "coupling" ? "Coupling" : "Relevance",
    ),
  );
  root = el(
    "div",
    { class: "card side" },
    el("div", { class: "segments" }, this.#modes),
    el("div", { class: "tile layered" }, this.#image, this.#layer),
    this.#legend,
    this.#fieldText,
    this.#caption,
  );

  /**
   * @param {import("../../lib/images.js").Images} image
   * @param {Api.TraceResponse} response
   * @param {string[]} classes
   */
  show(image, response, classes) {
    const { rows, columns, types, parent, traces } = response;
    paintImage(this.#image, image);
    this.#response = response;
    this.#numClasses = classes.length;
    this.#focus = Math.min(this.#focus, rows * columns - 1);
    this.#cells = makeCells(response);
    this.#dots = makeDots(response);
    this.#marks.replaceChildren(...this.#cells, ...this.#dots);
    const which = traces.length > 1 ? " by the first router" : "";
    const mean = this.#dots.length ? "" : ", whose mean has the colour";
    const where =
      rows * columns > 1
        ? `${rows} × ${columns} places with ${types} types of [[primary capsule]] each${mean}`
        : `${types} capsules that see the whole image`;
    this.#caption.replaceChildren(...explain(`${where}; for the class ${classes[parent]}${which}.`));
    this.#setMode(this.#mode);
    this.#hideField();
  }

  /** @param {number} at */
  showIteration(at) {
    this.#at = at;
    const trace = this.#response?.traces[0];
    if (!trace) return;
    const step = Math.min(at, trace.coupling.length - 1);
    const isRelevance = this.#mode === "relevance";
    const most = Math.max(1e-9, ...trace.relevance[step]);
    const shares = this.#dots.length ? null : trace.shares[step][this.#response?.parent ?? 0];
    this.#cells.forEach((cell, n) => {
      const strength = isRelevance ? trace.relevance[step][n] / most : shares ? 1 : 0;
      cell.style.fillOpacity = (0.75 * strength).toFixed(3);
      cell.style.fill = shares && !isRelevance ? ratioColor(shares[n] * this.#numClasses) : "";
    });
    this.#dots.forEach((dot, n) => {
      dot.setAttribute("fill", ratioColor(trace.coupling[step][n] * this.#numClasses));
      dot.style.display = isRelevance ? "none" : "";
    });
    if (isRelevance) this.#legend.replaceChildren(...relevanceLegend(most));
  }

  /** @param {Mode} mode */
  #setMode(mode) {
    this.#mode = mode;
    for (const button of this.#modes) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    if (mode === "coupling") this.#legend.replaceChildren(...ratioLegend());
    this.showIteration(this.#at);
  }

  /** @param {PointerEvent} event */
  #showNearest(event) {
    const places = this.#response?.places ?? [];
    const [x, y] = pointerPosition(this.#layer, event);
    const distances = places.map(([row, column]) => Math.hypot(row - y, column - x));
    this.#showField(distances.indexOf(Math.min(...distances)));
  }

  /** @param {number} n */
  #showField(n) {
    const box = this.#response?.fields[n];
    if (!this.#response || !box) return;
    this.#focus = n;
    const [top, left, bottom, right] = box;
    setAttributes(this.#field, { x: left, y: top, width: right - left, height: bottom - top, visibility: "visible" });
    const { columns } = this.#response;
    const percent = Math.round(100 * (bottom - top) * (right - left));
    const place = `row ${Math.floor(n / columns) + 1}, column ${(n % columns) + 1}`;
    this.#fieldText.replaceChildren(
      ...explain(`[[receptive field|Receptive field]] of ${place}: ${percent} % of the image`),
    );
  }

  #hideField() {
    this.#field.setAttribute("visibility", "hidden");
    const text = this.#response?.fields.length ? "Point at a place to see its [[receptive field]]." : "";
    this.#fieldText.replaceChildren(...explain(text));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (!this.#response) return;
    const { rows, columns } = this.#response;
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.#showField(clamp(this.#focus + moves[event.key], [0, rows * columns - 1]));
  }
}

/** The colours of a coupling, with numbers. */
export function ratioLegend() {
  const stops = [1 / RATIO_LIMIT, Math.SQRT1_2, 1, Math.SQRT2, RATIO_LIMIT].map((ratio) => ratioColor(ratio));
  const bar = el("span", {
    class: "scale-bar",
    style: { background: `linear-gradient(to right, ${stops.join(", ")})` },
  });
  const texts = ["× 0.5", "× 1 (uniform)", "× 2"].map((text) => el("span", {}, text));
  return [el("span", { class: "scale-name" }, term("coupling"), " relative to a uniform share"), bar, ...texts];
}

/** @param {number} most */
function relevanceLegend(most) {
  const bar = el("span", { class: "scale-bar relevance-bar" });
  const texts = ["0", "", most.toPrecision(2)].map((text) => el("span", {}, text));
  return [el("span", { class: "scale-name" }, term("relevance"), ": coupling × activation per place"), bar, ...texts];
}

/**
 * A frame about the capsules of each position.
 *
 * @param {Api.TraceResponse} response
 */
function makeCells({ places }) {
  const size = 0.9 * smallestDistance(places);
  return places.map(([row, column]) =>
    svg("rect", { class: "cell", x: column - size / 2, y: row - size / 2, width: size, height: size, rx: 0.02 }),
  );
}

/**
 * The types of a position are in a small square about its centre; none where they would be too small to be seen.
 *
 * @param {Api.TraceResponse} response
 */
function makeDots({ present, places, types }) {
  const side = Math.ceil(Math.sqrt(types));
  const cell = (0.78 * smallestDistance(places)) / side;
  if (cell < SMALLEST_DOT) return [];
  const offset = (/** @type {number} */ n) => (n - (side - 1) / 2) * cell;
  return present.map((activation, n) => {
    const position = Math.floor(n / types);
    const type = n % types;
    const [row, column] = places[position];
    const radius = cell * 0.45 * Math.sqrt(clamp(activation, [0.02, 1]));
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
