// @ts-check
/** The class capsules of an image: lengths, probabilities, reconstructions and the predicted class. */
import { GREEN, RED } from "../../lib/colors.js";
import { el } from "../../lib/dom.js";
import { term } from "../../lib/glossary.js";
import { decodeImages, paintHeat, paintImage, paintOverlay } from "../../lib/images.js";
import { fixed } from "../../lib/numbers.js";
import { reconstructionNote } from "../../lib/reconstructionNote.js";

/** Widest column of class names, in characters. */
const MAX_NAME = 12;
/** Longer names stand above the images. */
const SHORT_NAME = 2;

export class Results {
  #classes;
  #isPair;
  #rows;
  #reconstruction = el("canvas");
  #caption = el("figcaption");
  #figure = el("figure", {}, el("div", { class: "tile" }, this.#reconstruction), this.#caption);
  #relevance = el("canvas", { id: "relevance" });
  #explained = el("figcaption");
  #explanation = el("figure", {}, el("div", { class: "tile" }, this.#relevance), this.#explained);
  #verdict = el("p", { class: "verdict", id: "verdict", "aria-live": "polite" });
  #certainty = el("p", { class: "small muted certainty" });

  /**
   * @param {import("../../app.js").App} app
   * @param {HTMLCanvasElement} input Shows the input of the network.
   */
  constructor({ info }, input) {
    this.#classes = info.classes;
    this.#isPair = info.labels > 1;
    this.#rows = info.classes.map(makeRow);
    const nameWidth = Math.min(MAX_NAME, Math.max(2, ...info.classes.map((name) => name.length + 1)));
    const inputFigure = el(
      "figure",
      {},
      el("div", { class: "tile" }, input),
      el("figcaption", {}, "input of the network"),
    );
    const kinds = ["classes", !info.decoder && "lengths-only", info.classes.length > 12 && "many"].filter(Boolean);
    const isLong = info.classes.some((name) => name.length > SHORT_NAME);
    this.root = el(
      "div",
      { class: "card results" },
      el(
        "div",
        { class: isLong ? "summary long" : "summary" },
        inputFigure,
        this.#figure,
        this.#explanation,
        el("div", { class: "prediction" }, this.#verdict, this.#certainty),
      ),
      el(
        "div",
        { class: kinds.join(" "), role: "list", style: { "--name": `${nameWidth}ch` } },
        headerRow(),
        this.#rows.map(({ row }) => row),
      ),
      reconstructionNote(info),
    );
  }

  /**
   * @param {Api.DrawResponse} response
   * @param {{ isEmpty: boolean }} view A drawing without strokes.
   */
  show({ activations, probabilities, reconstructions, relevance, image }, { isEmpty }) {
    const pair = this.#isPair;
    const order = activations.map((_, n) => n).sort((a, b) => activations[b] - activations[a]);
    const images = reconstructions && decodeImages(reconstructions);
    this.root.classList.toggle("idle", isEmpty);
    this.#rows.forEach(({ row, bar, number, canvas }, n) => {
      // Without strokes no class is predicted, whichever capsule is the longest.
      const rank = isEmpty ? -1 : order.indexOf(n);
      bar.style.width = isEmpty ? "0" : `${(100 * activations[n]).toFixed(1)}%`;
      number.textContent = isEmpty ? "–" : activations[n].toFixed(2);
      row.classList.toggle("first", rank === 0);
      row.classList.toggle("second", pair && rank === 1);
      row.classList.toggle("pair", pair);
      if (images) paintImage(canvas, images, n);
    });
    this.#figure.hidden = !images || isEmpty;
    if (images) this.#showReconstruction(images, order, pair);
    this.#explanation.hidden = !relevance || isEmpty;
    if (relevance) this.#showRelevance(decodeImages(image), decodeImages(relevance), order);
    const names = order.slice(0, pair ? 2 : 1).map((n) => this.#classes[n]);
    this.#verdict.textContent = isEmpty ? "no drawing yet" : names.join(" + ");
    this.#showCertainty(isEmpty ? null : probabilities, order[0]);
  }

  /**
   * @param {number[] | null} probabilities
   * @param {number} best
   */
  #showCertainty(probabilities, best) {
    this.#certainty.hidden = !probabilities;
    if (!probabilities) return;
    const text = ` ${fixed(100 * probabilities[best], 0)} % (calibrated)`;
    this.#certainty.replaceChildren(term("probability"), text);
  }

  /**
   * @param {import("../../lib/images.js").Images} image
   * @param {import("../../lib/images.js").Images} relevance One map for each predicted class.
   * @param {number[]} order
   */
  #showRelevance(image, relevance, [first]) {
    if (this.#isPair) {
      paintOverlay(this.#relevance, relevance, [0, 1], [RED, GREEN]);
      this.#explained.replaceChildren(term("relevance"), " for each");
      return;
    }
    paintHeat(this.#relevance, image, relevance);
    this.#explained.replaceChildren(term("relevance"), ` for ${this.#classes[first]}`);
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
    el("b", { title: name }, name),
    el("div", { class: "track" }, bar),
    number,
    el("div", { class: "tile" }, canvas),
  );
  return { row, bar, number, canvas };
}

function headerRow() {
  return el(
    "div",
    { class: "class head" },
    el("span", {}, "class"),
    el("span", {}, term("length", "length of its capsule")),
    el("span"),
    el("span", {}, "image"),
  );
}
