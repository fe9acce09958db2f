// @ts-check
/** The class capsules of an image: lengths, reconstructions and the predicted class. */
import { GREEN, RED } from "../../lib/colors.js";
import { el } from "../../lib/dom.js";
import { decodeImages, paintImage, paintOverlay } from "../../lib/images.js";

/** Widest column of class names, in characters. */
const MAX_NAME = 12;

export class Results {
  #classes;
  #rows;
  #reconstruction = el("canvas");
  #caption = el("figcaption");
  #figure = el("figure", {}, el("div", { class: "tile" }, this.#reconstruction), this.#caption);
  #verdict = el("p", { class: "verdict", id: "verdict", "aria-live": "polite" });

  /**
   * @param {import("../../app.js").App} app
   * @param {HTMLCanvasElement} input Shows the input of the network.
   */
  constructor({ info }, input) {
    this.#classes = info.classes;
    this.#rows = info.classes.map(makeRow);
    const nameWidth = Math.min(MAX_NAME, Math.max(2, ...info.classes.map((name) => name.length + 1)));
    const inputFigure = el(
      "figure",
      {},
      el("div", { class: "tile" }, input),
      el("figcaption", {}, "input of the network"),
    );
    const list = { class: `classes${info.decoder ? "" : " lengths-only"}`, role: "list" };
    this.root = el(
      "div",
      { class: "card" },
      el("div", { class: "summary" }, inputFigure, this.#figure, this.#verdict),
      el(
        "div",
        { ...list, style: { "--name": `${nameWidth}ch` } },
        headerRow(),
        this.#rows.map(({ row }) => row),
      ),
    );
  }

  /**
   * @param {Api.DrawResponse} response
   * @param {{ pair: boolean, isEmpty: boolean }} view Two classes instead of one; a drawing without strokes.
   */
  show({ activations, reconstructions }, { pair, isEmpty }) {
    const order = activations.map((_, n) => n).sort((a, b) => activations[b] - activations[a]);
    const images = reconstructions && decodeImages(reconstructions);
    this.#rows.forEach(({ row, bar, number, canvas }, n) => {
      // Without strokes no class is predicted, whichever capsule is the longest.
      const rank = isEmpty ? -1 : order.indexOf(n);
      bar.style.width = `${(100 * activations[n]).toFixed(1)}%`;
      number.textContent = activations[n].toFixed(2);
      row.classList.toggle("first", rank === 0);
      row.classList.toggle("second", pair && rank === 1);
      row.classList.toggle("pair", pair);
      if (images) paintImage(canvas, images, n);
    });
    this.#figure.hidden = !images || isEmpty;
    if (images) this.#showReconstruction(images, order, pair);
    const names = order.slice(0, pair ? 2 : 1).map((n) => this.#classes[n]);
    this.#verdict.textContent = isEmpty ? "no drawing yet" : names.join(" + ");
  }

  /**
   * @param {import("../../lib/images.js").Images} images
   * @param {number[]} order
   * @param {boolean} pair
   */
  #showReconstruction(images, [first, second], pair) {
    if (!pair) {
      paintImage(this.#reconstruction, images, first);
      this.#caption.replaceChildren(`reconstruction of ${this.#classes[first]}`);
      return;
    }
    paintOverlay(this.#reconstruction, images, [first, second], [RED, GREEN]);
    this.#caption.replaceChildren(
      el("b", { class: "red" }, this.#classes[first]),
      " and ",
      el("b", { class: "green" }, this.#classes[second]),
    );
  }
}

/** @param {string} name */
function makeRow(name) {
  const bar = el("div", { class: "bar eased" });
  const number = el("span", { class: "number" });
  const canvas = el("canvas");
  const row = el(
    "div",
    { class: "class", role: "listitem" },
    el("b", {}, name),
    el("div", { class: "track" }, bar),
    number,
    el("div", { class: "tile" }, canvas),
  );
  return { row, bar, number, canvas };
}

function headerRow() {
  const texts = ["class", "length of its capsule", "", "image"];
  return el(
    "div",
    { class: "class head", "aria-hidden": "true" },
    texts.map((text) => el("span", {}, text)),
  );
}
