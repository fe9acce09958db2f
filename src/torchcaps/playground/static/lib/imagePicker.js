// @ts-check
/** Thumbnails of samples to choose from. */
import { post } from "./api.js";
import { el } from "./dom.js";
import { decodeImages, paintImage } from "./images.js";
import { currentInput, currentSamples, currentStrokes } from "./imageSource.js";

/** @typedef {import("./imageSource.js").Input} Input */

/** Number of thumbnails at a time. */
const PAGE_SIZE = 20;

/** @type {Map<number, Promise<Api.SamplesResponse>>} */
const pages = new Map();

/**
 * The samples of a page, requested once. A failed request is made again.
 *
 * @param {number} start
 */
function loadSamples(start) {
  const cached = pages.get(start);
  if (cached) return cached;
  const request = post("draw/samples", { start, count: PAGE_SIZE });
  pages.set(start, request);
  request.catch(() => pages.delete(start));
  return request;
}

export class ImagePicker {
  #app;
  #choose;
  #strip = el("div", { class: "strip", role: "group", "aria-label": "Samples" });
  #drawing = el("button", { type: "button", class: "small", onclick: () => this.#choose("drawing") }, "your drawing");

  /**
   * @param {import("../app.js").App} app
   * @param {(input: number | "drawing") => void} choose Called with the chosen sample or the drawing.
   * @param {{ drawing?: boolean }} [options] `drawing`: whether the drawing can be chosen.
   */
  constructor(app, choose, { drawing = true } = {}) {
    this.#app = app;
    this.#choose = choose;
    const more = el("button", { type: "button", class: "small", onclick: () => this.#nextPage() }, "others");
    more.hidden = app.info.samples <= PAGE_SIZE;
    this.root = el(
      "div",
      { class: "picker" },
      this.#strip,
      el("div", { class: "row" }, more, drawing && this.#drawing),
    );
    this.#fill();
  }

  /** Mark the current input, and load the samples again if that failed before. */
  update() {
    this.#markInput();
    if (!this.#strip.childElementCount) this.#fill();
  }

  #markInput() {
    const samples = currentSamples(this.#app);
    for (const button of this.#strip.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(samples.includes(Number(button.dataset.sample))));
    }
    this.#drawing.hidden = !currentStrokes(this.#app).length;
    this.#drawing.setAttribute("aria-pressed", String(currentInput(this.#app) === "drawing"));
  }

  #pageStart() {
    const { state, info } = this.#app;
    const sample = state.integer("page", [0, info.samples - 1], currentSamples(this.#app).at(-1) ?? 0);
    return Math.floor(sample / PAGE_SIZE) * PAGE_SIZE;
  }

  #nextPage() {
    const next = this.#pageStart() + PAGE_SIZE;
    this.#app.state.set("page", next < this.#app.info.samples ? next : 0);
    this.#fill();
  }

  async #fill() {
    const start = this.#pageStart();
    // The status line has the error of a failed request.
    const samples = await loadSamples(start).catch(() => null);
    if (!samples) return;
    const images = decodeImages(samples.images);
    this.#strip.replaceChildren(...samples.labels.map((label, n) => this.#thumbnail(images, n, start + n, label)));
    this.#markInput();
  }

  /**
   * @param {import("./images.js").Images} images
   * @param {number} at
   * @param {number} sample
   * @param {number} label
   */
  #thumbnail(images, at, sample, label) {
    const canvas = el("canvas");
    paintImage(canvas, images, at);
    const name = this.#app.info.classes[label];
    return el(
      "button",
      {
        type: "button",
        class: "tile",
        title: name,
        "data-sample": sample,
        "aria-label": `sample ${sample}: ${name}`,
        onclick: () => this.#choose(sample),
      },
      canvas,
    );
  }
}
