// @ts-check
/** Bars for values from 0 to 1. */
import { el } from "./dom.js";
import { fixed } from "./numbers.js";

/**
 * A bar.
 *
 * @param {number} value
 * @param {string} color
 * @param {string} [kind] Further class.
 */
export function gauge(value, color, kind = "") {
  const level = el("div", { class: "level eased", style: { width: `${100 * value}%`, background: color } });
  return el("div", { class: `gauge ${kind}` }, level);
}

/**
 * A bar with a name and its value.
 *
 * @param {import("./dom.js").Child[]} name
 * @param {number} value
 * @param {string} color
 * @param {import("./dom.js").Attributes} [attributes]
 */
export function meter(name, value, color, attributes = {}) {
  const number = el("b", { class: "number" }, fixed(value));
  return el("div", { class: "meter", ...attributes }, el("span", {}, name), gauge(value, color), number);
}
