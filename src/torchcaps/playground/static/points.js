// Points of the plane, how they are written in the address, and the ellipses about them.
import { clamp } from "./parts.js";

export const BOUNDS = { x: [-1.5, 1.5], y: [-1, 1] };
export const MOST = 400;
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// Two letters for each coordinate, of 4096 steps across the plane.
export function pack(points) {
  const letters = (value, [low, high]) => {
    const step = Math.round((clamp(value, [low, high]) - low) / (high - low) * 4095);
    return DIGITS[step >> 6] + DIGITS[step & 63];
  };
  return points.map(([x, y]) => letters(x, BOUNDS.x) + letters(y, BOUNDS.y)).join("");
}

export function unpack(text) {
  if (typeof text !== "string" || text.length % 4 || !/^[\w-]*$/.test(text)) return null;
  const number = (at, [low, high]) => low + (DIGITS.indexOf(text[at]) * 64 + DIGITS.indexOf(text[at + 1])) / 4095 * (high - low);
  const points = [];
  for (let at = 0; at < text.length && points.length < MOST; at += 4) points.push([number(at, BOUNDS.x), number(at + 2, BOUNDS.y)]);
  return points;
}

// The axes of an ellipse and its turn in degrees, from the entries of a covariance.
export function axes([xx, xy, yy]) {
  const middle = (xx + yy) / 2;
  const apart = Math.hypot((xx - yy) / 2, xy);
  return { long: Math.sqrt(middle + apart), short: Math.sqrt(Math.max(middle - apart, 1e-9)), angle: Math.atan2(2 * xy, xx - yy) * 90 / Math.PI };
}

export const inside = ([x, y]) => [clamp(x, BOUNDS.x), clamp(y, BOUNDS.y)];
