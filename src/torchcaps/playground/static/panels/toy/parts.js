// @ts-check
/** The parts of the toy, and their text for the address. */
import { clamp, indices } from "../../lib/numbers.js";

/** @typedef {Api.ToyPart} Part */
/** @typedef {Part["kind"]} Kind */

/** The letter of each kind in the address. */
/** @type {Record<Kind, string>} */
const LETTERS = {
  triangle: "t",
  rectangle: "r",
  door: "d",
  window: "w",
  "left eye": "l",
  "right eye": "e",
  nose: "n",
  mouth: "m",
};
const KINDS = /** @type {Kind[]} */ (Object.keys(LETTERS));
const FACE_KINDS = KINDS.slice(4);

/**
 * The kinds of parts that belong to the same wholes as these parts.
 *
 * @param {Part[]} parts
 */
export const kindsBeside = (parts) => (FACE_KINDS.includes(parts[0]?.kind) ? FACE_KINDS : KINDS.slice(0, 4));

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
 * Parts as text: the letter of the kind, x and y in hundredths, the angle in tenths of a degree, size in hundredths.
 *
 * @param {Part[]} parts
 */
export function packParts(parts) {
  return parts
    .map(({ kind, x, y, angle, size }) => {
      return LETTERS[kind] + [x * 100, y * 100, angle * 10, size * 100].map(Math.round).join(".");
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
  const allowed = kindsBeside(parts);
  if (!parts.every(({ kind }) => allowed.includes(kind))) return null;
  return parts.every((part) => [part.x, part.y, part.angle, part.size].every(Number.isFinite)) ? parts : null;
}

/**
 * @param {string} word
 * @param {Api.ToyLimits} limits
 */
function unpackPart(word, limits) {
  const numbers = word.slice(1).split(".").map(Number);
  const [x, y, angle, size] = indices(4).map((n) => numbers[n] / (n === 2 ? 10 : 100));
  const kind = KINDS.find((name) => LETTERS[name] === word[0]) ?? "triangle";
  return limitPart({ kind, x, y, angle, size }, limits);
}

/**
 * @param {Part[]} parts
 * @param {number} n
 */
export const partName = (parts, n) => `${parts[n].kind} ${n + 1}`;
