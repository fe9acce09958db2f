// @ts-check
/** The drawing pad, for mouse, finger, pen and keyboard. */
import { el } from "../../lib/dom.js";
import { addPoint, drawStrokes, packStrokes } from "../../lib/drawing.js";
import { context2d } from "../../lib/images.js";
import { currentInput, currentStrokes } from "../../lib/imageSource.js";
import { clamp } from "../../lib/numbers.js";

/** @typedef {import("../../lib/drawing.js").Point} Point */

const PEN_WIDTH = 0.055;
/** The pen of the keyboard: where it starts, how far a key moves it, and its range. */
const PEN_START = /** @type {Point} */ ([0.5, 0.3]);
const PEN_STEP = 0.04;
const PEN_RANGE = /** @type {const} */ ([0.05, 0.95]);
/** @type {Record<string, Point>} */
const PEN_MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const LABEL =
  "Drawing pad. Arrow keys move the pen, space lowers and lifts it, backspace removes the last stroke, delete clears.";

export class DrawingPad {
  #app;
  #onChange;
  /** @type {import("../../lib/drawing.js").Stroke[]} */
  #strokes;
  /** @type {Point | null} Position of the keyboard's pen. */
  #pen = null;
  /** @type {import("../../lib/drawing.js").Stroke | null} The stroke that is being drawn. */
  #stroke = null;
  /** @type {HTMLCanvasElement | null} */
  #background = null;
  #canvas = el("canvas", {
    id: "pad",
    width: 560,
    height: 560,
    tabindex: 0,
    role: "application",
    "aria-label": LABEL,
    onpointerdown: (/** @type {PointerEvent} */ event) => this.#startStroke(event),
    onpointermove: (/** @type {PointerEvent} */ event) => this.#continueStroke(event),
    onlostpointercapture: () => this.liftPen(),
    onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
    onfocus: () => this.redraw(),
    onblur: () => this.redraw(),
  });
  #context = context2d(this.#canvas);
  #invitation = el("p", { class: "invitation", "aria-hidden": "true" }, "Draw here");
  root = el("div", { class: "tile pad" }, this.#canvas, this.#invitation);

  /**
   * @param {import("../../app.js").App} app
   * @param {() => void} onChange Called when the drawing changes.
   */
  constructor(app, onChange) {
    this.#app = app;
    this.#onChange = onChange;
    this.#strokes = currentStrokes(app);
  }

  get isEmpty() {
    return !this.#strokes.length;
  }

  /** Read the strokes from the address. */
  reload() {
    this.#strokes = currentStrokes(this.#app);
    this.liftPen();
  }

  /**
   * Set the image that is shown while the input is no drawing.
   *
   * @param {HTMLCanvasElement} canvas
   */
  setBackground(canvas) {
    this.#background = canvas;
    this.redraw();
  }

  liftPen() {
    this.#stroke = null;
  }

  undo() {
    this.liftPen();
    if (!this.#isInput()) return;
    this.#strokes.pop();
    this.#save();
  }

  clear() {
    this.liftPen();
    this.#strokes = [];
    this.#save();
  }

  redraw() {
    const { width, height } = this.#canvas;
    const background = this.#isInput() ? null : this.#background;
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.clearRect(0, 0, width, height);
    this.#invitation.hidden = this.#isInput() && !this.isEmpty;
    this.#invitation.textContent = this.#isInput() ? "Draw here" : "Draw over it to start your own";
    this.#canvas.classList.toggle("inked", background?.classList.contains("inked") ?? true);
    if (background) {
      // In proportion, in the middle.
      const scale = Math.min(width / background.width, height / background.height);
      const [w, h] = [background.width * scale, background.height * scale];
      this.#context.imageSmoothingEnabled = true;
      this.#context.drawImage(background, (width - w) / 2, (height - h) / 2, w, h);
    }
    this.#context.scale(width, height);
    this.#context.strokeStyle = "#000";
    if (!background) drawStrokes(this.#context, this.#strokes, PEN_WIDTH);
    if (this.#pen && document.activeElement === this.#canvas) this.#drawPen(this.#pen);
  }

  /** @param {Point} pen */
  #drawPen(pen) {
    this.#context.beginPath();
    this.#context.arc(...pen, PEN_WIDTH / 2, 0, 7);
    // White below black: visible on ink and on paper.
    for (const [color, width] of /** @type {[string, number][]} */ ([
      ["#fff", 0.013],
      ["#000", 0.005],
    ])) {
      this.#context.strokeStyle = color;
      this.#context.lineWidth = width;
      this.#context.stroke();
    }
  }

  #isInput() {
    return currentInput(this.#app) === "drawing";
  }

  #save() {
    this.#app.state.set("input", "drawing");
    this.#app.state.set("strokes", packStrokes(this.#strokes));
    this.redraw();
    this.#onChange();
  }

  /** @param {Point} point */
  #lowerPen(point) {
    if (!this.#isInput()) this.#strokes = [];
    this.#stroke = [point];
    this.#strokes.push(this.#stroke);
    this.#save();
  }

  /**
   * @param {PointerEvent} event
   * @returns {Point}
   */
  #position({ clientX, clientY }) {
    const box = this.#canvas.getBoundingClientRect();
    return [clamp((clientX - box.left) / box.width, [0, 1]), clamp((clientY - box.top) / box.height, [0, 1])];
  }

  /** @param {PointerEvent} event */
  #startStroke(event) {
    // A second finger draws nothing: the line would jump between the two.
    if (event.button !== 0 || !event.isPrimary) return;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#pen = null;
    this.#lowerPen(this.#position(event));
  }

  /** @param {PointerEvent} event */
  #continueStroke(event) {
    if (!this.#stroke || !this.#canvas.hasPointerCapture(event.pointerId)) return;
    const before = this.#stroke.length;
    for (const part of event.getCoalescedEvents?.() ?? [event]) addPoint(this.#stroke, this.#position(part));
    if (this.#stroke.length === before) addPoint(this.#stroke, this.#position(event));
    if (this.#stroke.length !== before) this.#save();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    this.#pen ??= PEN_START;
    if (event.key in PEN_MOVES) this.#movePen(this.#pen, PEN_MOVES[event.key]);
    else if (event.key === " ") {
      if (this.#stroke) this.liftPen();
      else this.#lowerPen(this.#pen);
    } else if (event.key === "Backspace") this.undo();
    else if (event.key === "Delete") this.clear();
    else return;
    event.preventDefault();
  }

  /**
   * @param {Point} pen
   * @param {Point} move
   */
  #movePen([x, y], [dx, dy]) {
    this.#pen = [clamp(x + dx * PEN_STEP, PEN_RANGE), clamp(y + dy * PEN_STEP, PEN_RANGE)];
    if (!this.#stroke) {
      this.redraw();
      return;
    }
    addPoint(this.#stroke, this.#pen);
    this.#save();
  }
}
