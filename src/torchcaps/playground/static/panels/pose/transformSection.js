// @ts-check
/** Transformations of the input: sliders, the scores of both networks, and the curves of a sweep. */
import { latest, post } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { term } from "../../lib/glossary.js";
import { imageSource } from "../../lib/imageSource.js";
import { decodeImages, paintImage } from "../../lib/images.js";
import { argmax, clamp, fixed } from "../../lib/numbers.js";
import { linePlot } from "../../lib/plot.js";
import { completeTask } from "../../lib/tasks.js";

/** @typedef {keyof Api.ImageTransform} Name */
/** @typedef {Record<Name, number>} Transform */

/** @type {Record<Name, { text: string, unit: string, axis: string }>} */
const TEXTS = {
  right: { text: "Shift right", unit: " px", axis: "shift right, pixels" },
  down: { text: "Shift down", unit: " px", axis: "shift down, pixels" },
  rotate: { text: "Rotate", unit: "°", axis: "rotate, degrees" },
  scale: { text: "Scale", unit: " ×", axis: "scale, factor" },
  shear: { text: "Shear", unit: "", axis: "shear, slope" },
};
const NAMES = /** @type {Name[]} */ (Object.keys(TEXTS));
const PLOT_HEIGHT = 440;
/** Colours of the dimensions that change most. */
const DIMENSION_COLORS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c4)"];

export class TransformSection {
  #app;
  #limits;
  #sliders;
  #image = el("canvas");
  #predictions = el("p", { class: "predictions", id: "predictions" });
  #lengthPlot = el("div", { class: "card" });
  #posePlot = el("div", { class: "card" });

  /** @param {import("../../app.js").App} app */
  constructor(app) {
    this.#app = app;
    this.#limits = app.info.limits.pose.transforms;
    this.#sliders = NAMES.map((name) => this.#slider(name));
    const reset = el("button", { type: "button", class: "small", onclick: () => this.#set(null) }, "Reset");
    this.root = el(
      "div",
      { class: "cards pose second" },
      el(
        "div",
        { class: "card" },
        el("div", { class: "row between top" }, el("h2", {}, "Transform the input"), reset),
        el("div", { class: "transformed" }, el("div", { class: "tile" }, this.#image), this.#predictions),
        this.#sliders.map(({ row }) => row),
      ),
      this.#lengthPlot,
      this.#posePlot,
    );
  }

  /** Show the transformation of the address for the current input. */
  update() {
    const transform = this.#transform();
    for (const { name, row, input, output } of this.#sliders) {
      input.value = String(transform[name]);
      output.textContent = `${transform[name]}${TEXTS[name].unit}`;
      row.classList.toggle("selected", name === this.#sweep());
    }
    this.#load();
  }

  /** @param {Name} name */
  #slider(name) {
    const { low, high, step } = this.#limits[name];
    const id = `transform-${name}`;
    const output = el("output", { class: "number" });
    const input = el("input", {
      type: "range",
      id,
      min: low,
      max: high,
      step,
      "aria-label": TEXTS[name].text,
      oninput: () => this.#set({ ...this.#transform(), [name]: Number(input.value) }, name),
      onfocus: () => this.#setSweep(name),
    });
    const row = el("div", { class: "slider" }, el("label", { for: id }, TEXTS[name].text), input, output);
    return { name, row, input, output };
  }

  /** The transformation that the address names, limited to the ranges of the sliders. */
  #transform() {
    const stored = this.#app.state.get("pose.transform") ?? {};
    const entries = NAMES.map((name) => {
      const { low, high, step, default: neutral } = this.#limits[name];
      const value = Number.isFinite(stored[name]) ? clamp(stored[name], [low, high]) : neutral;
      return [name, step === 1 ? Math.round(value) : value];
    });
    return /** @type {Transform} */ (Object.fromEntries(entries));
  }

  #sweep() {
    return this.#app.state.choice("pose.sweep", NAMES, "rotate");
  }

  /**
   * @param {Transform | null} transform
   * @param {Name} [sweep]
   */
  #set(transform, sweep = this.#sweep()) {
    this.#app.state.set("pose.transform", transform);
    this.#app.state.set("pose.sweep", sweep);
    this.update();
  }

  /** @param {Name} name */
  #setSweep(name) {
    if (this.#sweep() === name) return;
    this.#app.state.set("pose.sweep", name);
    this.update();
  }

  #load = latest(async () => {
    const sweep = this.#sweep();
    const body = { source: imageSource(this.#app), transform: this.#transform(), sweep };
    const response = await post("pose/transform", body);
    if (!this.root.isConnected) return;
    paintImage(this.#image, decodeImages(response.image));
    this.#showPredictions(response.scores);
    if (argmax(response.scores.capsules) !== response.label) completeTask("rotate");
    this.#plotLengths(response, sweep);
    this.#plotPoses(response, sweep);
  });

  /** @param {Api.ClassScores} scores */
  #showPredictions({ capsules, cnn }) {
    const line = (/** @type {string} */ name, /** @type {string} */ color, /** @type {number[]} */ scores) => {
      const best = argmax(scores);
      const label = el("b", {}, this.#app.info.classes[best]);
      const shown = name === "CNN" ? term("CNN") : name;
      return el("span", {}, el("b", { class: color }, shown), ": ", label, ` at ${fixed(scores[best])}`);
    };
    this.#predictions.replaceChildren(line("capsules", "blue", capsules), cnn ? line("CNN", "red", cnn) : "");
  }

  /**
   * @param {Api.TransformResponse} response
   * @param {Name} sweep
   */
  #plotLengths({ label, values, lengths, cnn }, sweep) {
    const name = this.#app.info.classes[label];
    /** @type {import("../../lib/plot.js").Series[]} */
    const series = [{ values: lengths, label: `length of the capsule of ${name}`, color: "var(--c0)" }];
    if (cnn) series.push({ values: cnn, label: `the CNN's probability of ${name}`, color: "var(--c3)", dash: "5 4" });
    linePlot(this.#lengthPlot, {
      ...this.#plotOptions(values, sweep, "Is it still recognised?"),
      series,
      yRange: [0, 1],
      title: "Length of the capsule and probability of the CNN over the sweep",
    });
  }

  /**
   * @param {Api.TransformResponse} response
   * @param {Name} sweep
   */
  #plotPoses({ values, poses }, sweep) {
    const dimensions = poses[0].map((_, d) => poses.map((pose) => pose[d]));
    const change = dimensions.map((curve) => Math.max(...curve) - Math.min(...curve));
    const order = change.map((_, d) => d).sort((a, b) => change[b] - change[a]);
    const reach = Math.max(0.3, ...dimensions.flat().map(Math.abs));
    const grey = "color-mix(in srgb, var(--muted) 32%, transparent)";
    linePlot(this.#posePlot, {
      ...this.#plotOptions(values, sweep, "How its pose changes"),
      yRange: [-reach, reach],
      series: [
        ...dimensions.map((curve) => ({ values: curve, color: grey, width: 1.2 })),
        ...DIMENSION_COLORS.slice(0, order.length).map((color, n) => ({
          values: dimensions[order[n]],
          label: `dimension ${order[n] + 1}`,
          color,
        })),
      ],
      title: "The dimensions of the pose over the sweep",
    });
  }

  /**
   * @param {number[]} values
   * @param {Name} sweep
   * @param {string} y
   */
  #plotOptions(values, sweep, y) {
    return { x: values, mark: this.#transform()[sweep], height: PLOT_HEIGHT, labels: { x: TEXTS[sweep].axis, y } };
  }
}
