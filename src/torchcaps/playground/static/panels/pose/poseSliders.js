// @ts-check
/** A slider for each dimension of a pose. */
import { el } from "../../lib/dom.js";
import { fixed } from "../../lib/numbers.js";

export class PoseSliders {
  #range;
  #onInput;
  #onChange;
  root = el("div", { class: "dims" });

  /**
   * @param {Api.SliderRange} range Range of an offset.
   * @param {{ onInput: (dimension: number, offset: number) => void, onChange: () => void }} listeners `onInput` while a
   *   slider moves, `onChange` when it is released.
   */
  constructor(range, { onInput, onChange }) {
    this.#range = range;
    this.#onInput = onInput;
    this.#onChange = onChange;
  }

  /**
   * @param {number[]} pose
   * @param {number[]} offsets
   */
  show(pose, offsets) {
    this.root.replaceChildren(...pose.map((value, n) => this.#row(n, value, offsets[n])));
  }

  /**
   * @param {number} dimension
   * @param {number} value
   * @param {number} offset
   */
  #row(dimension, value, offset) {
    const { low, high, step } = this.#range;
    const id = `dim-${dimension}`;
    const output = el("output", { class: "number" }, fixed(value + offset));
    const input = el("input", {
      type: "range",
      id,
      min: low,
      max: high,
      step,
      value: offset,
      "aria-label": `dimension ${dimension + 1}`,
      onchange: this.#onChange,
      oninput: () => {
        output.textContent = fixed(value + Number(input.value));
        this.#onInput(dimension, Number(input.value));
      },
    });
    return el("div", { class: "slider dim" }, el("label", { for: id }, String(dimension + 1)), input, output);
  }
}
