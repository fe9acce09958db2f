// @ts-check
/** The panel Draw: the lengths and reconstructions of the class capsules for a drawing, a sample or an image. */
import { latest, post } from "../lib/api.js";
import { el } from "../lib/dom.js";
import { ImagePicker } from "../lib/imagePicker.js";
import { currentInput, currentSamples, imageSource } from "../lib/imageSource.js";
import { decodeImages, paintImage } from "../lib/images.js";
import { completeTask } from "../lib/tasks.js";
import { Results } from "./draw/results.js";
import { DrawingPad } from "./draw/pad.js";

/** Length of a capsule that has recognised something. */
const RECOGNISED = 0.8;
/** Test images at a time: as tall as the pad beside them. */
const SAMPLES = 30;

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Draw",
  hint: (info) => {
    const subject = info.digits ? "a digit" : "something";
    if (info.labels > 1) {
      return (
        "Draw two digits on top of each other, or choose two: the two longest [[class capsule|class capsules]] are " +
        "the prediction. Red and green show which strokes each capsule explains, by its [[reconstruction]]."
      );
    }
    const classes = info.digits ? "that digit" : classList(info.classes);
    const last = info.decoder
      ? "The small image is the [[reconstruction]] from that capsule alone."
      : "The longest capsule is the prediction.";
    return (
      `Draw ${subject}, or choose or drop an image: the [[length]] of each [[class capsule]] says how sure the ` +
      `network is of ${classes}. ${last}`
    );
  },
  mount: (root, app) => new DrawPanel(root, app),
};

/** Number of classes that a hint names; a list of more ends after three. */
const NAMED_CLASSES = 5;
const KEYS_HINT = "Keys on the pad: arrows move the pen, Space lowers and lifts it, Backspace undoes, Delete clears.";

/** @param {string[]} classes */
function classList(classes) {
  const names = classes.map((name) => `“${name}”`);
  if (names.length > NAMED_CLASSES) return `${names.slice(0, 3).join(", ")} and ${names.length - 3} more`;
  return [names.slice(0, -1).join(", "), ...names.slice(-1)].filter(Boolean).join(" or ");
}

class DrawPanel {
  #root;
  #app;
  #pad;
  #picker;
  #results;
  #input = el("canvas");
  #single;
  #double;
  #undo = el("button", { type: "button", id: "undo", onclick: () => this.#pad.undo() }, "Undo");
  #clear = el("button", { type: "button", id: "clear", onclick: () => this.#pad.clear() }, "Clear");

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    this.#single = this.#modeButton("one", "One digit", 1);
    this.#double = this.#modeButton("two", "Two digits", 2);
    this.#pad = new DrawingPad(app, () => this.#update());
    this.#picker = new ImagePicker(app, (input) => this.#choose(input), { count: SAMPLES });
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
    modes.hidden = !this.#networkFor(1) || !this.#networkFor(2);
    const edits = el("div", { class: "row" }, this.#undo, this.#clear);
    const what = this.#app.info.labels > 1 ? "Or choose two test images" : "Or choose a test image";
    const keys = el("p", { class: "muted small keys" }, KEYS_HINT);
    const drop = el("p", { class: "muted small drop" }, "Drop or paste an image of your own anywhere on the page.");
    return el(
      "div",
      { class: "cards draw" },
      el("div", { class: "card" }, el("div", { class: "row between" }, modes, edits), this.#pad.root, keys),
      this.#results.root,
      el("div", { class: "card picker-card" }, el("h2", {}, what), this.#picker.root, drop),
    );
  }

  /**
   * The network for one or two digits: this one if it is one, else the first of the catalog.
   *
   * @param {number} labels
   */
  #networkFor(labels) {
    const { info } = this.#app;
    if (!info.digits) return null;
    return info.labels === labels ? info.network : (info.networks.find((one) => one.labels === labels)?.name ?? null);
  }

  /**
   * @param {string} id
   * @param {string} text
   * @param {number} labels
   */
  #modeButton(id, text, labels) {
    const isCurrent = this.#app.info.labels === labels;
    const title = `Use the network ${this.#networkFor(labels)}, trained on ${text.toLowerCase()}`;
    const onclick = () => this.#setMode(labels);
    return el("button", { type: "button", id, title, "aria-pressed": String(isCurrent), onclick }, text);
  }

  #update() {
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
    this.#results.show(response, { isEmpty });
    this.#checkTasks(response, isEmpty);
  });

  /**
   * @param {Api.DrawResponse} response
   * @param {boolean} isEmpty
   */
  async #checkTasks({ activations }, isEmpty) {
    const input = currentInput(this.#app);
    const order = activations.map((_, n) => n).sort((a, b) => activations[b] - activations[a]);
    if (input === "drawing" && !isEmpty && activations[order[0]] > RECOGNISED) completeTask("draw");
    if (!Array.isArray(input)) return;
    const labels = await Promise.all(input.map((sample) => this.#picker.labelOf(sample)));
    if (labels.every((label) => label !== undefined && order.slice(0, 2).includes(label))) completeTask("pair");
  }

  /** @param {number} labels */
  #setMode(labels) {
    const network = this.#networkFor(labels);
    if (!network || labels === this.#app.info.labels) return;
    const first = this.#app.info.networks[0].name;
    const [sample] = currentSamples(this.#app);
    const input = sample === undefined ? currentInput(this.#app) : labels > 1 ? null : sample;
    this.#app.open({ network: network === first ? null : network, input });
  }

  /** @param {number | "drawing" | "upload"} input */
  #choose(input) {
    const last = currentSamples(this.#app).at(-1);
    const isSecond = this.#app.info.labels > 1 && typeof input === "number" && last !== undefined && last !== input;
    this.#pad.liftPen();
    this.#app.state.set("input", isSecond ? [last, input] : input);
    this.#pad.redraw();
    this.#update();
  }
}
