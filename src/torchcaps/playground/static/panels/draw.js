// @ts-check
/** The panel Draw: the lengths and reconstructions of the class capsules for a drawing or a sample. */
import { latest, post } from "../lib/api.js";
import { el } from "../lib/dom.js";
import { ImagePicker } from "../lib/imagePicker.js";
import { currentInput, currentSamples, imageSource } from "../lib/imageSource.js";
import { decodeImages, paintImage } from "../lib/images.js";
import { Results } from "./draw/results.js";
import { DrawingPad } from "./draw/pad.js";

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Draw",
  hint:
    "Draw a digit: the length of each class capsule is the network's confidence in that class, and the small image " +
    "is the reconstruction from that capsule alone. Draw two digits on top of each other, and see whether two " +
    "capsules separate the strokes.",
  mount: (root, app) => new DrawPanel(root, app),
};

class DrawPanel {
  #root;
  #app;
  #pad;
  #picker;
  #results;
  #input = el("canvas");
  #single = el("button", { type: "button", id: "one", onclick: () => this.#setPair(false) }, "one digit");
  #double = el("button", { type: "button", id: "two", onclick: () => this.#setPair(true) }, "two digits");
  #undo = el("button", { type: "button", id: "undo", onclick: () => this.#pad.undo() }, "undo");
  #clear = el("button", { type: "button", id: "clear", onclick: () => this.#pad.clear() }, "clear");

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    this.#pad = new DrawingPad(app, () => this.#update());
    this.#picker = new ImagePicker(app, (sample) => this.#choose(sample), { drawing: false });
    this.#results = new Results(app, this.#input);
    root.append(this.#layout());
    this.#pad.redraw();
    this.#update();
  }

  /** @param {string[]} changedKeys */
  onAddress(changedKeys) {
    if (changedKeys.includes("strokes") || changedKeys.includes("input")) this.#pad.reload();
    this.#pad.redraw();
    this.#update();
  }

  #layout() {
    const modes = el("div", { class: "segments" }, this.#single, this.#double);
    const edits = el("div", { class: "row" }, this.#undo, this.#clear);
    return el(
      "div",
      { class: "cards draw" },
      el("div", { class: "card" }, el("div", { class: "row between" }, modes, edits), this.#pad.root),
      el("div", { class: "card picker-card" }, el("h2", {}, "or choose a test image"), this.#picker.root),
      this.#results.root,
    );
  }

  #isPair() {
    return this.#app.state.get("draw.two") === true;
  }

  #update() {
    const pair = this.#isPair();
    this.#single.setAttribute("aria-pressed", String(!pair));
    this.#double.setAttribute("aria-pressed", String(pair));
    this.#undo.disabled = this.#clear.disabled = currentInput(this.#app) !== "drawing" || this.#pad.isEmpty;
    this.#picker.update();
    this.#predict();
  }

  #predict = latest(async () => {
    const response = await post("draw/predict", { source: imageSource(this.#app) });
    if (!this.#root.isConnected) return;
    paintImage(this.#input, decodeImages(response.image));
    this.#pad.setBackground(this.#input);
    const isEmpty = currentInput(this.#app) === "drawing" && this.#pad.isEmpty;
    this.#results.show(response, { pair: this.#isPair(), isEmpty });
  });

  /** @param {boolean} pair */
  #setPair(pair) {
    const { state, info } = this.#app;
    const [sample] = currentSamples(this.#app);
    state.set("draw.two", pair || null);
    if (sample !== undefined) state.set("input", pair ? [sample, (sample + 2) % info.samples] : sample);
    this.#update();
  }

  /** @param {number | "drawing"} sample */
  #choose(sample) {
    const last = currentSamples(this.#app).at(-1);
    const isSecond = this.#isPair() && last !== undefined && last !== sample;
    this.#pad.liftPen();
    this.#app.state.set("input", isSecond ? [last, sample] : sample);
    this.#update();
  }
}
