// @ts-check
/** The input of the network, shared by the panels: a sample, two overlaid samples, or the drawing. */
import { toBitmap, unpackStrokes } from "./drawing.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {number | [number, number] | "drawing"} Input */

const FIRST_SAMPLE = 3;

/**
 * The input that the address names, or the first sample.
 *
 * @param {App} app
 * @returns {Input}
 */
export function currentInput({ state, info }) {
  const input = state.get("input", FIRST_SAMPLE);
  const isSample = (/** @type {unknown} */ n) => Number.isInteger(n) && Number(n) >= 0 && Number(n) < info.samples;
  if (input === "drawing" || isSample(input)) return input;
  if (Array.isArray(input) && input.length === 2 && input.every(isSample)) return [input[0], input[1]];
  return Math.min(FIRST_SAMPLE, info.samples - 1);
}

/** @param {App} app */
export function currentStrokes({ state }) {
  return unpackStrokes(state.get("strokes", ""));
}

/**
 * The samples of the input; none for a drawing.
 *
 * @param {App} app
 * @returns {number[]}
 */
export function currentSamples(app) {
  const input = currentInput(app);
  return input === "drawing" ? [] : [input].flat();
}

/**
 * The input as the body of a request.
 *
 * @param {App} app
 * @returns {Api.SampleSource | Api.DrawingSource}
 */
export function imageSource(app) {
  const [sample, second] = currentSamples(app);
  if (sample === undefined) return { drawing: toBitmap(currentStrokes(app)) };
  return second === undefined ? { sample } : { sample, second };
}
