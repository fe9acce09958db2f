// @ts-check
/** The scene of the toy: parts that can be moved, their votes, and the wholes. */
import { NO_WHOLE, PALETTE, blend } from "../../lib/colors.js";
import { hasModifier, pointerPosition, setAttributes, svg } from "../../lib/dom.js";
import { fixed } from "../../lib/numbers.js";
import { boxAt, drawLabels } from "./labels.js";
import { partName } from "./parts.js";
import { composePoses, detailPath, framePath, outline, partsOf, svgPoints, svgTransform, toPlane } from "./shapes.js";

/** @typedef {import("./parts.js").Part} Part */
/** @typedef {import("./shapes.js").Pose} Pose */

/** Each whole has a dash pattern beside its colour. */
export const DASHES = [undefined, "7 4", "2 4"];
/** How far a key moves, turns (in degrees) and scales a part; with Shift five times as far. */
const KEY_MOVE = 0.1;
const KEY_TURN = 3;
const KEY_SCALE = 1.05;
const SHIFT_FACTOR = 5;

/**
 * @typedef {object} StageListeners
 * @property {(n: number, change: Partial<Pose>) => void} onEdit
 * @property {(n: number) => void} onSelect
 * @property {(n: number) => void} onRemove
 */

/**
 * @typedef {object} StageView
 * @property {Part[]} parts
 * @property {number} selected
 * @property {Api.ToyResponse | null} response Null while the response for other parts is outstanding.
 * @property {number} iteration
 * @property {"all" | "selected" | "none"} votes
 */

export class Stage {
  #limits;
  #listeners;
  /** @type {StageView} */
  #view = { parts: [], selected: 0, response: null, iteration: 0, votes: "all" };
  /** @type {{ n: number, turning: boolean, dx: number, dy: number, pointer: number } | null} */
  #drag = null;
  #wholes = svg("g");
  #labels = svg("g");
  #votes = svg("g");
  /** @type {{ group: SVGGElement, shape: SVGPolygonElement, detail: SVGPathElement, tag: SVGTextElement }[]} */
  #parts = [];
  #partLayer = svg("g");
  #handleLine = svg("line", { class: "handle-line" });
  #handle = svg("circle", {
    class: "handle",
    r: 0.17,
    onpointerdown: (/** @type {PointerEvent} */ event) => this.#startDrag(event, this.#view.selected, true),
  });

  /**
   * @param {Api.ToyLimits} limits
   * @param {StageListeners} listeners
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
        class: "stage",
        role: "group",
        "aria-label": "Scene with parts that can be moved and turned",
        onpointermove: (/** @type {PointerEvent} */ event) => this.#continueDrag(event),
        onpointerup: endDrag,
        onpointercancel: endDrag,
        onlostpointercapture: endDrag,
      },
      svg("path", { class: "ground", d: `M${left} 0H${right}M0 ${top}V${bottom}` }),
      this.#partLayer,
      this.#votes,
      this.#wholes,
      this.#labels,
      svg("g", {}, this.#handleLine, this.#handle),
    );
  }

  /** @param {StageView} view */
  show(view) {
    this.#view = view;
    this.#showParts();
    this.#showHandle();
    if (!view.response) return;
    this.#showVotes(view.response);
    this.#showWholes(view.response);
  }

  /**
   * Put a part on top of the others, so that it can be dragged where they cover it.
   *
   * @param {number} n
   */
  raisePart(n) {
    this.#partLayer.append(this.#parts[n].group);
  }

  /** @param {number} n */
  focusPart(n) {
    this.#parts[n]?.group.focus({ preventScroll: true });
  }

  #showParts() {
    const { parts, selected, response, iteration } = this.#view;
    // Elements are kept as long as their number stays, and with them focus and pointer capture.
    if (this.#parts.length !== parts.length) {
      this.#parts = parts.map((_, n) => this.#makePart(n));
      this.#partLayer.replaceChildren(...this.#parts.map(({ group }) => group));
    }
    parts.forEach((part, n) => {
      const { group, shape, detail, tag } = this.#parts[n];
      const pose = `x ${fixed(part.x)}, y ${fixed(part.y)}, turned by ${Math.round(part.angle)} degrees`;
      group.classList.toggle("is-selected", n === selected);
      group.setAttribute("aria-label", `${partName(parts, n)}: ${pose}, size ${fixed(part.size)}`);
      setAttributes(shape, { points: svgPoints(part.kind), transform: svgTransform(part) });
      setAttributes(detail, { d: detailPath(part.kind), transform: svgTransform(part) });
      setAttributes(tag, { x: part.x.toFixed(3), y: (part.y + 0.13).toFixed(3) });
      if (!response) return;
      const coupling = response.iterations[iteration].coupling[n];
      const colors = [...PALETTE.slice(0, coupling.length), NO_WHOLE];
      const opacity = (0.14 + 0.36 * Math.max(...coupling)).toFixed(2);
      setAttributes(shape, { fill: blend(colors, [...coupling, shareOfNone(coupling)]), "fill-opacity": opacity });
    });
  }

  /** @param {number} n */
  #makePart(n) {
    const shape = svg("polygon");
    const detail = svg("path", { class: "detail" });
    const tag = svg("text", { class: "tag" }, String(n + 1));
    const group = svg(
      "g",
      {
        class: "part",
        "data-part": n,
        tabindex: 0,
        role: "button",
        onpointerdown: (/** @type {PointerEvent} */ event) => this.#startDrag(event, n, false),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event, n),
        onfocus: () => this.#view.selected !== n && this.#listeners.onSelect(n),
      },
      shape,
      detail,
      tag,
    );
    return { group, shape, detail, tag };
  }

  #showHandle() {
    const part = this.#view.parts[this.#view.selected];
    const top = Math.min(...outline(part.kind, { x: 0, y: 0, angle: 0, size: part.size }).map(([, y]) => y));
    const edge = toPlane({ ...part, size: 1 }, [0, top]);
    const ring = toPlane({ ...part, size: 1 }, [0, top - 0.55]);
    const [x1, y1, x2, y2] = [...edge, ...ring].map((value) => value.toFixed(3));
    setAttributes(this.#handleLine, { x1, y1, x2, y2 });
    setAttributes(this.#handle, { cx: x2, cy: y2 });
  }

  /** @param {Api.ToyResponse} response */
  #showVotes({ wholes, votes, iterations }) {
    const { iteration, selected, votes: shown } = this.#view;
    const { coupling } = iterations[iteration];
    const isShown = (/** @type {number} */ i) => shown === "all" || (shown === "selected" && i === selected);
    const outlines = votes.flatMap((row, i) => {
      if (!isShown(i)) return [];
      return row.map((vote, j) => {
        const opacity = (0.05 + 0.85 * coupling[i][j]).toFixed(2);
        return wholeOutline(wholes[j], vote, { ...strokeOf(j), class: "vote", "stroke-opacity": opacity });
      });
    });
    this.#votes.replaceChildren(...outlines);
  }

  /** @param {Api.ToyResponse} response */
  #showWholes({ wholes, iterations }) {
    const { poses, activations } = iterations[this.#view.iteration];
    const outlines = wholes.map((whole, j) =>
      wholeOutline(whole, poses[j], { ...strokeOf(j), class: "whole", opacity: activations[j].toFixed(2) }),
    );
    this.#wholes.replaceChildren(...outlines);
    const labelled = wholes.map((whole, j) => ({
      name: whole.name,
      color: PALETTE[j],
      activation: activations[j],
      outlines: partsOf(whole).map(([kind, place]) => outline(kind, composePoses(poses[j], place))),
    }));
    drawLabels(this.#labels, labelled, this.#obstacles(), this.#limits);
  }

  /** What a name must not cover: the parts and the ring that turns one. */
  #obstacles() {
    const [x, y, r] = ["cx", "cy", "r"].map((name) => Number(this.#handle.getAttribute(name)));
    return [...this.#view.parts.map((part) => outline(part.kind, part)), boxAt([x, y], [2 * r, 2 * r])];
  }

  /**
   * @param {PointerEvent} event
   * @param {number} n
   * @param {boolean} turning
   */
  #startDrag(event, n, turning) {
    if (event.button) return;
    event.preventDefault();
    const [x, y] = pointerPosition(this.root, event);
    const part = this.#view.parts[n];
    this.#drag = { n, turning, dx: part.x - x, dy: part.y - y, pointer: event.pointerId };
    this.root.setPointerCapture(event.pointerId);
    this.root.classList.add("dragging");
    this.#listeners.onSelect(n);
    this.focusPart(n);
  }

  /** @param {PointerEvent} event */
  #continueDrag(event) {
    if (!this.#drag || event.pointerId !== this.#drag.pointer) return;
    const { n, turning, dx, dy } = this.#drag;
    const [x, y] = pointerPosition(this.root, event);
    const part = this.#view.parts[n];
    const angle = Math.round((Math.atan2(x - part.x, part.y - y) * 180) / Math.PI);
    this.#listeners.onEdit(n, turning ? { angle } : { x: x + dx, y: y + dy });
  }

  #endDrag() {
    this.#drag = null;
    this.root.classList.remove("dragging");
  }

  /**
   * @param {KeyboardEvent} event
   * @param {number} n
   */
  #onKey(event, n) {
    if (hasModifier(event)) return;
    const change = keyChange(event, this.#view.parts[n]);
    if (event.key === "Delete" || event.key === "Backspace") this.#listeners.onRemove(n);
    else if (change) this.#listeners.onEdit(n, change);
    else return;
    event.preventDefault();
  }
}

/**
 * The change of a part by a key.
 *
 * @param {KeyboardEvent} event
 * @param {Part} part
 * @returns {Partial<Pose> | undefined}
 */
function keyChange({ key, shiftKey }, { x, y, angle, size }) {
  const factor = shiftKey ? SHIFT_FACTOR : 1;
  const [move, turn] = [factor * KEY_MOVE, factor * KEY_TURN];
  const [larger, smaller] = [{ size: size * KEY_SCALE }, { size: size / KEY_SCALE }];
  /** @type {Record<string, Partial<Pose>>} */
  const changes = {
    ArrowLeft: { x: x - move },
    ArrowRight: { x: x + move },
    ArrowUp: { y: y - move },
    ArrowDown: { y: y + move },
    q: { angle: angle - turn },
    e: { angle: angle + turn },
    "+": larger,
    "=": larger,
    "-": smaller,
    _: smaller,
  };
  return changes[key.length === 1 ? key.toLowerCase() : key];
}

/**
 * The share of a part that belongs to no whole.
 *
 * @param {number[]} coupling
 */
export const shareOfNone = (coupling) => Math.max(0, 1 - coupling.reduce((sum, share) => sum + share, 0));

/** @param {number} j */
const strokeOf = (j) => ({ stroke: PALETTE[j], "stroke-dasharray": DASHES[j] });

/**
 * @param {Api.ToyWhole} whole
 * @param {Pose} pose
 * @param {import("../../lib/dom.js").Attributes} attributes
 */
function wholeOutline(whole, pose, attributes) {
  const polygons = partsOf(whole).map(([kind, place]) =>
    svg("polygon", { points: svgPoints(kind), transform: svgTransform(composePoses(pose, place)) }),
  );
  const frame = svg("path", { d: framePath(whole.name), transform: svgTransform(pose) });
  return svg("g", { fill: "none", ...attributes }, frame, polygons);
}
