// @ts-check
/** A drawing: strokes of points from 0 to 1, their text for the address, and their pixels. */
import { context2d } from "./images.js";
import { clamp } from "./numbers.js";

/** @typedef {[number, number]} Point */
/** @typedef {Point[]} Stroke */

/** Smallest distance of two points of a stroke. */
const MIN_DISTANCE = 0.016;
/** A coordinate has two digits of base 36. */
const LEVELS = 36 * 36 - 1;
const MAX_TEXT = 20_000;
/** Side of the bitmap for the server, and the width of its pen: that of the data's digits. */
const BITMAP_SIDE = 112;
const BITMAP_PEN = 0.13;

/**
 * Append a point to a stroke, unless it is too near to the last one.
 *
 * @param {Stroke} stroke
 * @param {Point} point
 */
export function addPoint(stroke, point) {
  const last = stroke[stroke.length - 1];
  if (!last || Math.hypot(point[0] - last[0], point[1] - last[1]) >= MIN_DISTANCE) stroke.push(point);
}

const encodeCoordinate = (/** @type {number} */ value) =>
  Math.round(clamp(value, [0, 1]) * LEVELS)
    .toString(36)
    .padStart(2, "0");

/** @param {Stroke[]} strokes */
export function packStrokes(strokes) {
  return strokes.map((stroke) => stroke.map((point) => point.map(encodeCoordinate).join("")).join("")).join(".");
}

/**
 * @param {unknown} text
 * @returns {Stroke[]}
 */
export function unpackStrokes(text) {
  if (typeof text !== "string" || !/^[0-9a-z.]*$/.test(text) || text.length > MAX_TEXT) return [];
  return text
    .split(".")
    .map(unpackStroke)
    .filter((stroke) => stroke.length);
}

/**
 * @param {string} text
 * @returns {Stroke}
 */
function unpackStroke(text) {
  const decode = (/** @type {string} */ digits) => parseInt(digits, 36) / LEVELS;
  return (text.match(/.{4}/g) ?? []).map((four) => [decode(four.slice(0, 2)), decode(four.slice(2))]);
}

/**
 * Draw strokes with rounded corners on a context whose unit is the side of the pad.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Stroke[]} strokes
 * @param {number} width
 */
export function drawStrokes(context, strokes, width) {
  context.lineWidth = width;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(...stroke[0]);
    for (let n = 1; n < stroke.length; n++) {
      const [x, y] = stroke[n - 1];
      context.quadraticCurveTo(x, y, (x + stroke[n][0]) / 2, (y + stroke[n][1]) / 2);
    }
    context.lineTo(...stroke[stroke.length - 1]);
    context.stroke();
  }
}

/**
 * The bitmap for the server: the drawing fills it, whatever its size on the pad.
 *
 * @param {Stroke[]} strokes
 * @returns {Api.Bitmap}
 */
export function toBitmap(strokes) {
  const points = strokes.flat();
  if (!points.length) return { width: 1, height: 1, pixels: btoa("\0") };
  const [left, top] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
  const side = Math.max(right - left, bottom - top, 0.02);
  const margin = side * BITMAP_PEN;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = BITMAP_SIDE;
  const context = context2d(canvas, { willReadFrequently: true });
  const scale = BITMAP_SIDE / (side + 2 * margin);
  context.scale(scale, scale);
  context.translate(margin + (side - (right - left)) / 2 - left, margin + (side - (bottom - top)) / 2 - top);
  drawStrokes(context, strokes, side * BITMAP_PEN);
  return { width: BITMAP_SIDE, height: BITMAP_SIDE, pixels: btoa(opacityBytes(context)) };
}

/** @param {CanvasRenderingContext2D} context */
function opacityBytes(context) {
  const { data } = context.getImageData(0, 0, BITMAP_SIDE, BITMAP_SIDE);
  let bytes = "";
  for (let n = 3; n < data.length; n += 4) bytes += String.fromCharCode(data[n]);
  return bytes;
}
