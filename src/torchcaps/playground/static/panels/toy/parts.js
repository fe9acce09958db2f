// @ts-check
/** The parts of the toy, and their text for the address. */
import { clamp, indices } from "../../lib/numbers.js";

/** @typedef {Api.ToyPart} Part */

/**
 * An angle in degrees from -180 to 180.
 *
 * @param {number} angle
 */
export function wrapAngle(angle) {
  return ((((angle + 180) % 360) + 360) % 360) - 180;
}

/**
 * A part inside the limits.
 *
 * @param {Part} part
 * @param {Api.ToyLimits} limits
 * @returns {Part}
 */
export function limitPart({ kind, x, y, angle, size }, limits) {
  return {
    kind,
    x: clamp(x, limits.x),
    y: clamp(y, limits.y),
    angle: wrapAngle(angle),
    size: clamp(size, limits.size),
  };
}

/**
 * Parts as text: t or r, then x and y in hundredths, the angle in tenths of a degree and the size in hundredths.
 *
 * @param {Part[]} parts
 */
export function packParts(parts) {
  return parts
    .map(({ kind, x, y, angle, size }) => {
      return kind[0] + [x * 100, y * 100, angle * 10, size * 100].map(Math.round).join(".");
    })
    .join("~");
}

/**
 * The parts of a text; null if it is invalid.
 *
 * @param {unknown} text
 * @param {Api.ToyLimits} limits
 */
export function unpackParts(text, limits) {
  const words = String(text).split("~").slice(0, limits.max_parts);
  const parts = words.map((word) => unpackPart(word, limits));
  return parts.every((part) => [part.x, part.y, part.angle, part.size].every(Number.isFinite)) ? parts : null;
}

/**
 * @param {string} word
 * @param {Api.ToyLimits} limits
 */
function unpackPart(word, limits) {
  const numbers = word.slice(1).split(".").map(Number);
  const [x, y, angle, size] = indices(4).map((n) => numbers[n] / (n === 2 ? 10 : 100));
  return limitPart({ kind: word[0] === "r" ? "rectangle" : "triangle", x, y, angle, size }, limits);
}

/**
 * @param {Part[]} parts
 * @param {number} n
 */
export const partName = (parts, n) => `${parts[n].kind} ${n + 1}`;
