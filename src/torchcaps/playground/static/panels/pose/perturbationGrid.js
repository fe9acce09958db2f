// @ts-check
/** The perturbation grid: a row for each dimension, a column for each offset (Sabour et al. 2017, figure 4). */
import { el } from "../../lib/dom.js";
import { decodeImages, paintImage } from "../../lib/images.js";
import { indices } from "../../lib/numbers.js";

export class PerturbationGrid {
  #onPick;
  /** @type {Api.GridResponse | null} */
  #grid = null;
  #title = el("h2", {}, "Perturbation of each dimension");
  #rows = el("div", { class: "rows", "aria-hidden": "true" });
  #canvas = el("canvas", {
    id: "grid",
    role: "img",
    "aria-label": "Reconstructions: dimensions in rows, offsets in columns",
  });

  /** @param {(dimension: number, offset: number) => void} onPick Called when an image of the grid is clicked. */
  constructor(onPick) {
    this.#onPick = onPick;
    const onclick = (/** @type {MouseEvent} */ event) => this.#pick(event);
    this.root = el(
      "div",
      { class: "card" },
      this.#title,
      el("div", { class: "numbered" }, this.#rows, el("div", { class: "tile image-grid", onclick }, this.#canvas)),
    );
  }

  /** @param {Api.GridResponse} grid */
  show(grid) {
    const reach = Math.max(...grid.offsets);
    this.#grid = grid;
    this.#title.textContent = `Each dimension from −${reach} to +${reach}`;
    paintImage(this.#canvas, decodeImages(grid.image));
    this.#canvas.dataset.rows = String(grid.rows);
    this.#rows.replaceChildren(...indices(grid.rows).map((n) => el("span", {}, String(n + 1))));
  }

  /** @param {MouseEvent} event */
  #pick(event) {
    if (!this.#grid) return;
    const { rows, offsets } = this.#grid;
    const box = this.#canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const column = Math.floor(((event.clientX - box.left) / box.width) * offsets.length);
    if (row >= 0 && row < rows && column >= 0 && column < offsets.length) this.#onPick(row, offsets[column]);
  }
}
