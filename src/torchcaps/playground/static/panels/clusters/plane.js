// @ts-check
/** The plane: points that can be added, moved and removed, and the ellipses of the clusters. */
import { PALETTE, blend, textColorOn } from "../../lib/colors.js";
import { hasModifier, pointerPosition, setAttributes, svg } from "../../lib/dom.js";
import { ellipseAxes, limitPoint } from "./points.js";

/** @typedef {import("./points.js").Point} Point */

const LABEL =
  "Plane: click to add a point. Keys: arrows move the cross, Enter adds a point, Delete removes the nearest.";
/** Largest distance between a pointer and the point that it hits; a finger is less precise. */
const MOUSE_REACH = 0.035;
const TOUCH_REACH = 0.1;
/** How far a key moves the cross, and how far with Shift. */
const KEY_STEP = 0.05;
const SHIFT_STEP = 0.2;

/**
 * @typedef {object} PlaneListeners
 * @property {(point: Point) => void} onAdd
 * @property {(n: number, point: Point) => void} onMove
 * @property {(n: number) => void} onRemove
 */

export class Plane {
  #limits;
  #listeners;
  /** @type {Point[]} */
  #points = [];
  /** @type {{ n: number, pointer: number } | null} */
  #drag = null;
  #dragged = false;
  #reach = MOUSE_REACH;
  /** @type {Point} */
  #cursor = [0, 0];
  #ellipses = svg("g");
  #dots = svg("g");
  #centers = svg("g");
  #cross = svg("path", { class: "cross" });

  /**
   * @param {Api.ClusterLimits} limits
   * @param {PlaneListeners} listeners
   */
  constructor(limits, listeners) {
    const [left, right] = limits.x;
    const [top, bottom] = limits.y;
    const endDrag = () => this.#endDrag();
    this.#limits = limits;
    this.#listeners = listeners;
    this.root = svg(
      "svg",
      {
        viewBox: `${left} ${top} ${right - left} ${bottom - top}`,
        class: "stage field",
        tabindex: 0,
        role: "application",
        "aria-label": LABEL,
        onpointerdown: (/** @type {PointerEvent} */ event) => this.#startDrag(event),
        onpointermove: (/** @type {PointerEvent} */ event) => this.#continueDrag(event),
        onpointerup: endDrag,
        onpointercancel: endDrag,
        onclick: (/** @type {MouseEvent} */ event) => this.#onClick(event),
        ondblclick: (/** @type {MouseEvent} */ event) => this.#remove(this.#pointAt(event)),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
      },
      svg("path", { class: "ground", d: `M${left} 0H${right}M0 ${top}V${bottom}` }),
      this.#ellipses,
      this.#dots,
      this.#centers,
      this.#cross,
    );
    this.#showCross();
  }

  /**
   * Show points, in the colours of the clusters if their responsibilities are known.
   *
   * @param {Point[]} points
   * @param {Uint8Array | null} responsibilities [points, clusters], or null.
   */
  showPoints(points, responsibilities) {
    this.#points = points;
    while (this.#dots.children.length > points.length) this.#dots.lastChild?.remove();
    while (this.#dots.children.length < points.length) this.#dots.append(svg("circle", { class: "dot", r: 0.024 }));
    const clusters = responsibilities ? responsibilities.length / points.length : 0;
    points.forEach(([x, y], n) => {
      const dot = this.#dots.children[n];
      setAttributes(dot, { cx: x.toFixed(4), cy: y.toFixed(4) });
      if (!responsibilities) return;
      const shares = [...responsibilities.subarray(n * clusters, (n + 1) * clusters)];
      const total = shares.reduce((sum, share) => sum + share, 0) || 1;
      dot.setAttribute(
        "fill",
        blend(
          PALETTE.slice(0, clusters),
          shares.map((share) => share / total),
        ),
      );
    });
  }

  /** @param {Api.ClusterIteration | undefined} iteration */
  showClusters(iteration) {
    const { means, covariances, activations } = iteration ?? { means: [], covariances: [], activations: [] };
    const ellipses = means.flatMap((mean, j) => makeEllipses(mean, covariances[j], activations[j], PALETTE[j]));
    this.#ellipses.replaceChildren(...ellipses);
    this.#centers.replaceChildren(...means.map((mean, j) => makeCenter(mean, j)));
  }

  #showCross() {
    const [x, y] = this.#cursor;
    this.#cross.setAttribute("d", `M${x - 0.06} ${y}h0.12M${x} ${y - 0.06}v0.12`);
  }

  /**
   * The number of the nearest point within a distance, or -1.
   *
   * @param {Point} position
   * @param {number} reach
   */
  #nearest([x, y], reach) {
    let best = -1;
    let smallest = reach;
    this.#points.forEach(([px, py], n) => {
      const distance = Math.hypot(px - x, py - y);
      if (distance < smallest) [best, smallest] = [n, distance];
    });
    return best;
  }

  /** @param {MouseEvent} event */
  #pointAt(event) {
    return this.#nearest(pointerPosition(this.root, event), this.#reach);
  }

  /** @param {PointerEvent} event */
  #startDrag(event) {
    this.#dragged = false;
    this.#reach = event.pointerType === "touch" ? TOUCH_REACH : MOUSE_REACH;
    const n = this.#pointAt(event);
    if (event.button || n < 0) return;
    event.preventDefault();
    this.#drag = { n, pointer: event.pointerId };
    this.root.setPointerCapture(event.pointerId);
    this.root.classList.add("dragging");
  }

  /** @param {PointerEvent} event */
  #continueDrag(event) {
    if (!this.#drag || this.#drag.pointer !== event.pointerId) return;
    this.#dragged = true;
    this.#listeners.onMove(this.#drag.n, limitPoint(pointerPosition(this.root, event), this.#limits));
  }

  #endDrag() {
    this.#drag = null;
    this.root.classList.remove("dragging");
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    // The end of a drag is a click too, and a click on a point is the first half of a double click.
    if (this.#dragged || this.#pointAt(event) >= 0) return;
    this.#listeners.onAdd(limitPoint(pointerPosition(this.root, event), this.#limits));
  }

  /** @param {number} n */
  #remove(n) {
    if (n >= 0) this.#listeners.onRemove(n);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (hasModifier(event)) return;
    const step = event.shiftKey ? SHIFT_STEP : KEY_STEP;
    /** @type {Record<string, Point>} */
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    const move = moves[event.key];
    if (move) {
      this.#cursor = limitPoint([this.#cursor[0] + move[0], this.#cursor[1] + move[1]], this.#limits);
      this.#showCross();
    } else if (event.key === "Enter" || event.key === " ") this.#listeners.onAdd(this.#cursor);
    else if (event.key === "Delete" || event.key === "Backspace") this.#remove(this.#nearest(this.#cursor, Infinity));
    else return;
    event.preventDefault();
  }
}

/**
 * Ellipses of one and two standard deviations, as strong as the activation.
 *
 * @param {readonly number[]} mean
 * @param {readonly number[]} covariance
 * @param {number} activation
 * @param {string} color
 */
function makeEllipses([x, y], covariance, activation, color) {
  const { long, short, angle } = ellipseAxes(covariance);
  const transform = `translate(${x} ${y}) rotate(${angle})`;
  const strength = 0.25 + 0.75 * activation;
  return [
    svg("ellipse", {
      class: "blob",
      rx: long,
      ry: short,
      transform,
      fill: color,
      "fill-opacity": (0.14 * strength).toFixed(3),
      stroke: color,
      "stroke-opacity": strength.toFixed(3),
    }),
    svg("ellipse", {
      class: "blob outer",
      rx: 2 * long,
      ry: 2 * short,
      transform,
      "stroke-dasharray": "4 3",
      stroke: color,
      "stroke-opacity": (0.6 * strength).toFixed(3),
    }),
  ];
}

/**
 * @param {readonly number[]} mean
 * @param {number} j
 */
function makeCenter([x, y], j) {
  const color = PALETTE[j];
  return svg(
    "g",
    {},
    svg("circle", { class: "disc", cx: x, cy: y, r: 0.055, fill: color }),
    svg("text", { class: "centre", x, y: y + 0.03, fill: textColorOn(color) }, String(j + 1)),
  );
}
