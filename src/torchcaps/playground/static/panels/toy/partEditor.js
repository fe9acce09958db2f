// @ts-check
/** Controls of the selected part: angle, size, addition and removal. */
import { el, options } from "../../lib/dom.js";
import { fixed } from "../../lib/numbers.js";
import { kindsBeside, partName } from "./parts.js";

/** @typedef {import("./parts.js").Part} Part */

/**
 * @typedef {object} EditorListeners
 * @property {(change: { angle?: number, size?: number }) => void} onEdit
 * @property {(kind: Part["kind"]) => void} onAdd
 * @property {() => void} onRemove
 */

export class PartEditor {
  #title = el("h2");
  #angle;
  #size;
  #add;
  #kinds = "";

  /**
   * @param {Api.ToyLimits} limits
   * @param {EditorListeners} listeners
   */
  constructor(limits, { onEdit, onAdd, onRemove }) {
    this.#angle = makeSlider("Angle", [-180, 180], 1, (angle) => onEdit({ angle }));
    this.#size = makeSlider("Size", limits.size, 0.01, (size) => onEdit({ size }));
    this.#add = el("select", {
      "aria-label": "Add a part",
      onchange: () => {
        const kind = /** @type {Part["kind"]} */ (this.#add.value);
        this.#add.value = "";
        if (kind) onAdd(kind);
      },
    });
    const remove = el("button", { type: "button", onclick: onRemove }, "Remove");
    this.root = el(
      "div",
      { class: "selected-part" },
      el("div", { class: "row" }, this.#title, el("span", { class: "grow" }), this.#add, remove),
      el("div", { class: "part-sliders" }, this.#angle.row, this.#size.row),
    );
  }

  /**
   * @param {Part[]} parts
   * @param {number} selected
   */
  show(parts, selected) {
    const { angle, size } = parts[selected];
    const kinds = kindsBeside(parts);
    if (kinds.join() !== this.#kinds) {
      this.#kinds = kinds.join();
      const texts = Object.fromEntries(kinds.map((kind) => [kind, `+ ${kind}`]));
      this.#add.replaceChildren(...options({ "": "Add a part …", ...texts }));
    }
    this.#title.textContent = `Selected: ${partName(parts, selected)}`;
    this.#angle.input.value = String(angle);
    this.#angle.output.textContent = `${Math.round(angle)}°`;
    this.#size.input.value = String(size);
    this.#size.output.textContent = fixed(size);
  }
}

/**
 * @param {string} text
 * @param {import("../../lib/numbers.js").Range} range
 * @param {number} step
 * @param {(value: number) => void} onInput
 */
function makeSlider(text, [min, max], step, onInput) {
  const output = el("output", { class: "small number" });
  const oninput = () => onInput(Number(input.value));
  const input = el("input", { type: "range", min, max, step, "aria-label": text, oninput });
  return { input, output, row: el("label", { class: "slider-row" }, text, input, output) };
}
