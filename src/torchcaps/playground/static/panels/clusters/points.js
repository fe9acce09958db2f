// @ts-check
/** The points of the plane, their text for the address, and ellipses of covariances. */
import { clamp } from "../../lib/numbers.js";

/** @typedef {[number, number]} Point */

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/** A coordinate has two digits of base 64. */
const LEVELS = 64 * 64 - 1;
const LETTERS_PER_POINT = 4;

/**
 * @param {number} value
 * @param {import("../../lib/numbers.js").Range} range
 */
function packCoordinate(value, [low, high]) {
  const level = Math.round(((clamp(value, [low, high]) - low) / (high - low)) * LEVELS);
  return DIGITS[level >> 6] + DIGITS[level & 63];
}

/**
 * @param {string} letters
 * @param {import("../../lib/numbers.js").Range} range
 */
function unpackCoordinate(letters, [low, high]) {
  const level = DIGITS.indexOf(letters[0]) * 64 + DIGITS.indexOf(letters[1]);
  return low + (level / LEVELS) * (high - low);
}

/**
 * @param {Point[]} points
 * @param {Api.ClusterLimits} limits
 */
export function packPoints(points, limits) {
  return points.map(([x, y]) => packCoordinate(x, limits.x) + packCoordinate(y, limits.y)).join("");
}

/**
 * The points of a text; null if it is invalid.
 *
 * @param {unknown} text
 * @param {Api.ClusterLimits} limits
 * @returns {Point[] | null}
 */
export function unpackPoints(text, limits) {
  if (typeof text !== "string" || text.length % LETTERS_PER_POINT || !/^[\w-]*$/.test(text)) return null;
  const words = (text.match(/.{4}/g) ?? []).slice(0, limits.max_points);
  return words.map((word) => [unpackCoordinate(word.slice(0, 2), limits.x), unpackCoordinate(word.slice(2), limits.y)]);
}

/**
 * A point inside the plane.
 *
 * @param {Point} point
 * @param {Api.ClusterLimits} limits
 * @returns {Point}
 */
export function limitPoint([x, y], limits) {
  return [clamp(x, limits.x), clamp(y, limits.y)];
}

/**
 * Half axes and angle (in degrees) of the ellipse of a covariance.
 *
 * @param {readonly number[]} covariance xx, xy and yy.
 */
export function ellipseAxes([xx, xy, yy]) {
  const mean = (xx + yy) / 2;
  const difference = Math.hypot((xx - yy) / 2, xy);
  return {
    long: Math.sqrt(mean + difference),
    short: Math.sqrt(Math.max(mean - difference, 1e-9)),
    angle: (Math.atan2(2 * xy, xx - yy) * 90) / Math.PI,
  };
}
