// @ts-check
/** The panel Pose: what each dimension of a class capsule represents, and how the pose follows the image. */
import { latest, post } from "../lib/api.js";
import { el } from "../lib/dom.js";
import { ImagePicker } from "../lib/imagePicker.js";
import { imageSource } from "../lib/imageSource.js";
import { decodeImages, paintImage } from "../lib/images.js";
import { clamp, fixed } from "../lib/numbers.js";
import { reconstructionNote } from "../lib/reconstructionNote.js";
import { completeTask } from "../lib/tasks.js";
import { PerturbationGrid } from "./pose/perturbationGrid.js";
import { PoseSliders } from "./pose/poseSliders.js";
import { TransformSection } from "./pose/transformSection.js";

/** Change of a dimension that can be seen. */
const LARGE_OFFSET = 0.2;

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Pose",
  hint: (info) =>
    info.decoder
      ? "Each [[dimension]] of the predicted [[class capsule]] changes one property of its " +
        `${info.digits ? "digit" : "image"}: move a slider, or click an image of the grid. Or transform the input ` +
        "itself: while it is recognised, the [[length]] stays and the [[pose]] changes."
      : "Move, turn or scale the input: while it is recognised, the [[length]] of its [[class capsule]] stays and " +
        "the [[pose]] changes. This network has no [[decoder]] that could draw a pose.",
  mount: (root, app) => new PosePanel(root, app),
};

class PosePanel {
  #root;
  #app;
  #picker;
  #pickerCard;
  #sliders;
  #grid;
  #transforms;
  /** @type {Api.PoseResponse | null} */
  #capsule = null;
  #input = el("canvas");
  #reconstruction = el("canvas");
  #caption = el("figcaption");
  #reset = el(
    "button",
    { type: "button", class: "small", id: "reset-pose", onclick: () => this.#setOffsets([]) },
    "Reset",
  );
  #views = /** @type {const} */ (["dimensions", "transform"]).map((view) =>
    el(
      "button",
      { type: "button", "data-view": view, onclick: () => this.#setView(view) },
      view === "dimensions" ? "Change the pose" : "Transform the input",
    ),
  );
  /** @type {HTMLElement} */
  #dimensions;
  #modes = el("div", { class: "segments pose-views", role: "group", "aria-label": "What to change" }, this.#views);

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    // A note on bad reconstructions takes the room of a row of images.
    const count = app.info.reconstruction?.poor ? 10 : 15;
    this.#picker = new ImagePicker(app, (input) => this.#choose(input), { count });
    this.#pickerCard = el("div", { class: "card picker-card" }, el("h2", {}, "Another image"), this.#picker.root);
    this.#sliders = new PoseSliders(app.info.limits.pose.offset, {
      onInput: (dimension, offset) => this.#setOffset(dimension, offset),
      onChange: () => this.#updateGrid(),
    });
    this.#grid = new PerturbationGrid((dimension, offset) => this.#addOffset(dimension, offset));
    this.#transforms = new TransformSection(app);
    this.#dimensions = this.#layout();
    // Without a decoder there is only the other view.
    this.#modes.hidden = !app.info.decoder;
    root.append(this.#modes, this.#dimensions, this.#transforms.root);
    this.#showView();
    this.#load();
  }

  onAddress() {
    this.#showView();
    this.#picker.update();
    this.#load();
  }

  /** @param {"dimensions" | "transform"} view */
  #setView(view) {
    this.#app.state.set("pose.view", view === "dimensions" ? null : view);
    this.#showView();
  }

  #showView() {
    const chosen = this.#app.state.choice("pose.view", ["dimensions", "transform"], "dimensions");
    const view = this.#app.info.decoder ? chosen : "transform";
    for (const button of this.#views) button.setAttribute("aria-pressed", String(button.dataset.view === view));
    this.#dimensions.hidden = view !== "dimensions";
    this.#transforms.root.hidden = view !== "transform";
    // The image picker is shared by both views.
    (view === "dimensions" ? this.#dimensions : this.#transforms.root).append(this.#pickerCard);
  }

  #layout() {
    const figure = el("figure", {}, el("div", { class: "tile", id: "drawn" }, this.#reconstruction), this.#caption);
    const header = el("div", { class: "row between top" }, el("h2", {}, "Pose of the capsule"), this.#reset);
    const inputFigure = el("figure", {}, el("div", { class: "tile" }, this.#input), el("figcaption", {}, "input"));
    return el(
      "div",
      { class: "cards pose" },
      el(
        "div",
        { class: "card" },
        el("h2", {}, "Input and reconstruction"),
        el("div", { class: "pictures" }, inputFigure, figure),
        reconstructionNote(this.#app.info),
      ),
      el("div", { class: "card sliders" }, header, this.#sliders.root),
      this.#grid.root,
    );
  }

  #load = latest(async () => {
    const capsule = await post("pose/capsule", { source: imageSource(this.#app) });
    if (!this.#root.isConnected) return;
    this.#capsule = capsule;
    paintImage(this.#input, decodeImages(capsule.image));
    this.#showSliders();
    this.#decode();
    this.#updateGrid();
    this.#transforms.update();
  });

  #decode = latest(async () => {
    if (!this.#capsule || !this.#app.info.decoder) return;
    const { label } = this.#capsule;
    const { image, length } = await post("pose/decode", { label, pose: this.#pose() });
    paintImage(this.#reconstruction, decodeImages(image));
    this.#caption.textContent = `reconstruction of ${this.#app.info.classes[label]}, length ${fixed(length)}`;
  });

  #updateGrid = latest(async () => {
    if (!this.#capsule || !this.#app.info.decoder) return;
    this.#grid.show(await post("pose/grid", { label: this.#capsule.label, pose: this.#pose() }));
  });

  #showSliders() {
    const offsets = this.#offsets();
    this.#reset.disabled = !offsets.some(Boolean);
    this.#sliders.show(this.#capsule?.pose ?? [], offsets);
  }

  /** The offsets that the address names; zeros if there are none for this pose. */
  #offsets() {
    const { state, info } = this.#app;
    const { low, high } = info.limits.pose.offset;
    const size = this.#capsule?.pose.length ?? 0;
    const stored = state.get("pose.offsets");
    const isValid = Array.isArray(stored) && stored.length === size && stored.every(Number.isFinite);
    return isValid ? stored.map((value) => clamp(value, [low, high])) : Array(size).fill(0);
  }

  #pose() {
    const offsets = this.#offsets();
    return (this.#capsule?.pose ?? []).map((value, n) => value + offsets[n]);
  }

  /**
   * @param {number} dimension
   * @param {number} offset
   */
  #withOffset(dimension, offset) {
    const { low, high } = this.#app.info.limits.pose.offset;
    return this.#offsets().map((old, n) => (n === dimension ? Number(fixed(clamp(offset, [low, high]))) : old));
  }

  /**
   * While a slider moves only the reconstruction follows.
   *
   * @param {number} dimension
   * @param {number} offset
   */
  #setOffset(dimension, offset) {
    this.#storeOffsets(this.#withOffset(dimension, offset));
    if (Math.abs(offset) >= LARGE_OFFSET) completeTask("dimension");
    this.#decode();
  }

  /**
   * @param {number} dimension
   * @param {number} offset
   */
  #addOffset(dimension, offset) {
    if (Math.abs(offset) >= LARGE_OFFSET) completeTask("dimension");
    this.#setOffsets(this.#withOffset(dimension, this.#offsets()[dimension] + offset));
  }

  /** @param {number[]} offsets None resets all. */
  #setOffsets(offsets) {
    this.#storeOffsets(offsets);
    this.#showSliders();
    this.#decode();
    this.#updateGrid();
  }

  /** @param {number[]} offsets */
  #storeOffsets(offsets) {
    const changed = offsets.some(Boolean);
    this.#app.state.set("pose.offsets", changed ? offsets : null);
    this.#reset.disabled = !changed;
  }

  /** @param {number | "drawing" | "upload"} input */
  #choose(input) {
    this.#app.state.set("input", input);
    this.#app.state.set("pose.offsets", null);
    this.#picker.update();
    this.#load();
  }
}
