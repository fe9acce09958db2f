// @ts-check
/** Colours of classes, wholes and clusters. */
import { clamp } from "./numbers.js";

/** The palette of Okabe and Ito, adapted to light and dark backgrounds; distinguishable with colour blindness. */
export const PALETTE = [
  "#0072B2",
  "#E69F00",
  "#009E73",
  "#D55E00",
  "#CC79A7",
  "#56B4E9",
  "#A89200",
  "#8C4B9E",
  "#8A8A8A",
  "#1B9AAA",
];

/** The colour of a part that belongs to no whole. */
export const NO_WHOLE = "#8A8A8A";
export const RED = /** @type {const} */ ([213, 94, 0]);
export const GREEN = /** @type {const} */ ([0, 158, 115]);
const BLUE = [0, 114, 178];
const ORANGE = [230, 159, 0];
const GREY = [150, 156, 163];

/** Red, green and blue of a colour "#rrggbb". */
const channels = (/** @type {string} */ color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));

/**
 * Black or white, whichever is readable on a colour "#rrggbb".
 *
 * @param {string} color
 */
export function textColorOn(color) {
  const [r, g, b] = channels(color).map((level) => (level / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/**
 * The weighted mean of colours "#rrggbb".
 *
 * @param {readonly string[]} colors
 * @param {readonly number[]} weights Sum to 1.
 */
export function blend(colors, weights) {
  const levels = colors.map(channels);
  const mixed = [0, 1, 2].map((c) => {
    const sum = weights.reduce((total, weight, n) => total + weight * levels[n][c], 0);
    return Math.round(clamp(sum, [0, 255]))
      .toString(16)
      .padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

/** Ratio at which a colour is strongest; its reciprocal is the other end. */
export const RATIO_LIMIT = 2;

/**
 * The colour of a ratio: grey at 1, blue at RATIO_LIMIT and above, orange at its reciprocal and below.
 *
 * @param {number} ratio
 */
export function ratioColor(ratio) {
  const strength = clamp(Math.log(Math.max(ratio, 1e-6)) / Math.log(RATIO_LIMIT), [-1, 1]);
  const end = strength > 0 ? BLUE : ORANGE;
  return `rgb(${GREY.map((level, c) => Math.round(level + (end[c] - level) * Math.abs(strength))).join(" ")})`;
}
