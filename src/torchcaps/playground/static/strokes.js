// A drawing: strokes of points from 0 to 1, written as text for the address, and painted at any size.

const STEP = 0.016; // closer points add nothing but length to the address
const LEVELS = 36 * 36 - 1;

export function thin(stroke, point) {
  const last = stroke[stroke.length - 1];
  if (!last || Math.hypot(point[0] - last[0], point[1] - last[1]) >= STEP) stroke.push(point);
}

const digits = (value) => Math.round(Math.min(1, Math.max(0, value)) * LEVELS).toString(36).padStart(2, "0");

export function write(strokes) {
  return strokes.map((stroke) => stroke.map(([x, y]) => digits(x) + digits(y)).join("")).join(".");
}

export function read(text) {
  if (typeof text !== "string" || !/^[0-9a-z.]*$/.test(text) || text.length > 20000) return [];
  return text.split(".").filter(Boolean).map((part) => (part.match(/.{4}/g) ?? []).map((four) => [
    parseInt(four.slice(0, 2), 36) / LEVELS, parseInt(four.slice(2), 36) / LEVELS,
  ])).filter((stroke) => stroke.length);
}

// Strokes on a context whose unit is the side of the pad; corners are rounded by going through the middles.
export function trace(context, strokes, width) {
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

// What is sent: the drawing fills the raster, with a pen as wide as that of the data's digits, however small it was drawn.
const RASTER = 112;
const PEN = 0.13;

export function raster(strokes) {
  const points = strokes.flat();
  if (!points.length) return { width: 1, height: 1, pixels: btoa("\0") };
  const [left, top] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
  const long = Math.max(right - left, bottom - top, 0.02);
  const margin = long * PEN;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = RASTER;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const scale = RASTER / (long + 2 * margin);
  context.scale(scale, scale);
  context.translate(margin + (long - (right - left)) / 2 - left, margin + (long - (bottom - top)) / 2 - top);
  trace(context, strokes, long * PEN);
  const { data } = context.getImageData(0, 0, RASTER, RASTER);
  let bytes = "";
  for (let n = 3; n < data.length; n += 4) bytes += String.fromCharCode(data[n]);
  return { width: RASTER, height: RASTER, pixels: btoa(bytes) };
}
