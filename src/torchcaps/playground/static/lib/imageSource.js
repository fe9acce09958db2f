// @ts-check
/** The input of the network, shared by the panels: a sample, two overlaid samples, the drawing, or the user's image. */
import { toBitmap, unpackStrokes } from "./drawing.js";
import { currentUpload } from "./upload.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {number | [number, number] | "drawing" | "upload"} Input */

const FIRST_SAMPLE = 3;
/** The first pair of a network for two digits. */
const FIRST_PAIR = /** @type {const} */ ([3, 6]);

/**
 * The input that the address names, or the first sample.
 *
 * @param {App} app
 * @returns {Input}
 */
export function currentInput({ state, info }) {
  const input = state.get("input");
  const isSample = (/** @type {unknown} */ n) => Number.isInteger(n) && Number(n) >= 0 && Number(n) < info.samples;
  if (input === "drawing" || (input === "upload" && currentUpload())) return input;
  const isPair = Array.isArray(input) && input.length === 2 && input.every(isSample);
  if (info.labels > 1) return isPair ? [input[0], input[1]] : isSample(input) ? input : [...FIRST_PAIR];
  if (isPair) return input[0];
  return isSample(input) ? input : Math.min(FIRST_SAMPLE, info.samples - 1);
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
  return typeof input === "string" ? [] : [input].flat();
}

/**
 * The input as the body of a request.
 *
 * @param {App} app
 * @returns {Api.SampleSource | Api.DrawingSource | Api.UploadSource}
 */
export function imageSource(app) {
  const upload = currentInput(app) === "upload" && currentUpload();
  if (upload) return { upload };
  const [sample, second] = currentSamples(app);
  if (sample === undefined) return { drawing: toBitmap(currentStrokes(app)) };
  return second === undefined ? { sample } : { sample, second };
}
