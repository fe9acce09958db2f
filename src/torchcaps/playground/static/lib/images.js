// @ts-check
/** Images of the API, painted on a canvas. */
import { RED as HEAT } from "./colors.js";
import { isDark } from "./theme.js";

/** Opacity of an image below heat. */
const FAINT = 0.45;

/** @typedef {{ count: number, width: number, height: number, channels: number, bytes: Uint8Array }} Images */
/** @typedef {readonly [number, number, number]} Rgb */

/**
 * The bytes of a base64 text.
 *
 * @param {string} text
 */
export function decodeBytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/**
 * @param {Api.EncodedImages} images
 * @returns {Images}
 */
export function decodeImages({ data, ...size }) {
  return { ...size, bytes: decodeBytes(data) };
}

/**
 * Paint one image at its own size; the CSS scales it.
 *
 * Strokes become black ink on a transparent background, which the dark theme inverts; other images stay as they are.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Images} images
 * @param {number} [at] Number of the image.
 */
export function paintImage(canvas, images, at = 0) {
  const { width, height, channels, bytes } = images;
  const ink = channels === 1 && document.documentElement.classList.contains("ink");
  canvas.classList.toggle("inked", ink);
  paintPixels(canvas, width, height, (n) => {
    const first = (at * width * height + n) * channels;
    if (channels === 3) return [bytes[first], bytes[first + 1], bytes[first + 2], 255];
    const level = bytes[first];
    return ink ? [0, 0, 0, level] : [level, level, level, 255];
  });
}

/**
 * Paint several grey images on top of each other, each in its colour.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Images} images
 * @param {readonly number[]} numbers
 * @param {readonly Rgb[]} colors
 */
export function paintOverlay(canvas, images, numbers, colors) {
  const { width, height, bytes } = images;
  const size = width * height;
  const dark = isDark();
  canvas.classList.remove("inked");
  paintPixels(canvas, width, height, (n) => {
    const levels = numbers.map((number) => bytes[number * size + n]);
    return mixInks(levels, colors, dark);
  });
}

/**
 * Paint an image faintly, and heat on it.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Images} image
 * @param {Images} heat A grey image of the same size.
 */
export function paintHeat(canvas, image, heat) {
  const { width, height, channels, bytes } = image;
  const ink = channels === 1 && document.documentElement.classList.contains("ink");
  const paper = isDark() ? 255 : 0;
  canvas.classList.remove("inked");
  paintPixels(canvas, width, height, (n) => {
    const level = (/** @type {number} */ c) => (ink ? paper : bytes[n * channels + (c % channels)]);
    const hot = heat.bytes[n] / 255;
    const alpha = 255 * FAINT * (ink ? bytes[n] / 255 : 1) * (1 - hot) + 255 * hot;
    // Heat lies over the image, as a layer that is as opaque as the heat is large.
    return [...[0, 1, 2].map((c) => level(c) + (HEAT[c] - level(c)) * ((255 * hot) / Math.max(alpha, 1))), alpha];
  });
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @param {(n: number) => ArrayLike<number>} rgba
 */
function paintPixels(canvas, width, height, rgba) {
  canvas.width = width;
  canvas.height = height;
  const context = context2d(canvas);
  const image = context.createImageData(width, height);
  for (let n = 0; n < width * height; n++) image.data.set(rgba(n), 4 * n);
  context.putImageData(image, 0, 0);
}

/**
 * Colours add up like light on a dark background, and darken like ink on paper.
 *
 * @param {readonly number[]} levels
 * @param {readonly Rgb[]} colors
 * @param {boolean} dark
 */
function mixInks(levels, colors, dark) {
  const strongest = Math.max(...levels);
  if (!strongest) return [0, 0, 0, 0];
  const total = dark ? strongest : levels.reduce((sum, level) => sum + level, 0);
  const dim = dark ? 1 : Math.min(1, 1.35 - 0.7 * (total / strongest - 0.5));
  const mixed = [0, 1, 2].map((c) => levels.reduce((sum, level, k) => sum + (level / total) * colors[k][c], 0) * dim);
  return [...mixed.map((level) => Math.min(255, level)), strongest];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export function context2d(canvas, settings) {
  const context = canvas.getContext("2d", settings);
  if (!context) throw new Error("this browser has no 2D canvas");
  return context;
}
