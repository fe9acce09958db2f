// @ts-check
/** Thumbnails of samples to choose from. */
import { currentNetwork, post } from "./api.js";
import { el } from "./dom.js";
import { decodeImages, paintImage } from "./images.js";
import { currentInput, currentSamples, currentStrokes } from "./imageSource.js";
import { currentUpload, openUpload } from "./upload.js";

/** @typedef {import("./imageSource.js").Input} Input */

/** Number of samples of a request. */
const PAGE_SIZE = 30;

/** @type {Map<string, Promise<Api.SamplesResponse>>} Requests by network and first sample. */
const pages = new Map();

/**
 * The samples of a page, requested once. A failed request is made again.
 *
 * @param {number} start
 */
function loadSamples(start) {
  const key = `${currentNetwork()} ${start}`;
  const cached = pages.get(key);
  if (cached) return cached;
  const request = post("draw/samples", { start, count: PAGE_SIZE });
  pages.set(key, request);
  request.catch(() => pages.delete(key));
  return request;
}

export class ImagePicker {
  #app;
  #choose;
  #count;
  #strip = el("div", { class: "strip", role: "group", "aria-label": "Samples" });
  #upload = el("button", { type: "button", class: "small", onclick: () => this.#choose("upload") }, "Your image");
  #drawing = el("button", { type: "button", class: "small", onclick: () => this.#choose("drawing") }, "Your drawing");

  /**
   * @param {import("../app.js").App} app
   * @param {(input: number | "drawing" | "upload") => void} choose Called with the chosen input.
   * @param {{ count?: number }} [options] `count`: number of thumbnails at a time, a divisor of a request's samples.
   */
  constructor(app, choose, { count = PAGE_SIZE } = {}) {
    this.#count = count;
    this.#app = app;
    this.#choose = choose;
    const more = el("button", { type: "button", class: "small", onclick: () => this.#nextPage() }, "More");
    more.hidden = app.info.samples <= count;
    this.root = el(
      "div",
      { class: "picker" },
      this.#strip,
      el("div", { class: "row" }, more, this.#drawing, this.#upload, this.#fileButton()),
    );
    this.#fill();
  }

  /** A button that opens an image of the user. */
  #fileButton() {
    const input = el("input", {
      type: "file",
      accept: "image/*",
      hidden: true,
      "aria-label": "Image file",
      onchange: async () => {
        if (input.files?.[0] && (await openUpload(input.files[0]))) this.#choose("upload");
        input.value = "";
      },
    });
    const title = "Open an image, or drop or paste one anywhere on the page";
    const onclick = () => input.click();
    return el("span", {}, input, el("button", { type: "button", class: "small", title, onclick }, "Open image …"));
  }

  /** Mark the current input, and load the samples again if that failed before. */
  update() {
    this.#markInput();
    if (!this.#strip.childElementCount) this.#fill();
  }

  /**
   * The label of a sample.
   *
   * @param {number} sample
   * @returns {Promise<number | undefined>}
   */
  async labelOf(sample) {
    const start = Math.floor(sample / PAGE_SIZE) * PAGE_SIZE;
    const samples = await loadSamples(start).catch(() => null);
    return samples?.labels[sample - start];
  }

  #markInput() {
    const samples = currentSamples(this.#app);
    for (const button of this.#strip.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(samples.includes(Number(button.dataset.sample))));
    }
    this.#upload.hidden = !currentUpload();
    this.#upload.setAttribute("aria-pressed", String(currentInput(this.#app) === "upload"));
    this.#drawing.hidden = !currentStrokes(this.#app).length;
    this.#drawing.setAttribute("aria-pressed", String(currentInput(this.#app) === "drawing"));
  }

  #pageStart() {
    const { state, info } = this.#app;
    const sample = state.integer("page", [0, info.samples - 1], currentSamples(this.#app).at(-1) ?? 0);
    return Math.floor(sample / this.#count) * this.#count;
  }

  #nextPage() {
    const next = this.#pageStart() + this.#count;
    this.#app.state.set("page", next < this.#app.info.samples ? next : 0);
    this.#fill();
  }

  async #fill() {
    const start = this.#pageStart();
    // The status line has the error of a failed request.
    const offset = start % PAGE_SIZE;
    const samples = await loadSamples(start - offset).catch(() => null);
    if (!samples) return;
    const images = decodeImages(samples.images);
    const labels = samples.labels.slice(offset, offset + this.#count);
    this.#strip.replaceChildren(...labels.map((label, n) => this.#thumbnail(images, offset + n, start + n, label)));
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
