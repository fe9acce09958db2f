// @ts-check
/** Helpers for numbers. */

/** @typedef {readonly [number, number]} Range Smallest and largest value. */

/**
 * @param {number} value
 * @param {Range} range
 */
export function clamp(value, [low, high]) {
  return Math.min(high, Math.max(low, value));
}

/**
 * A number with a fixed number of decimals and without a negative zero.
 *
 * @param {number} value
 * @param {number} [decimals]
 */
export function fixed(value, decimals = 2) {
  const text = value.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/**
 * Index of the largest value.
 *
 * @param {readonly number[]} values
 */
export function argmax(values) {
  return values.indexOf(Math.max(...values));
}

/**
 * The numbers from 0 to count - 1.
 *
 * @param {number} count
 */
export function indices(count) {
  return Array.from({ length: count }, (_, n) => n);
}
