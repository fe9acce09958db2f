// @ts-check
/** Shapes of the story: parts, outlines of wholes, bars and words. */
import { PALETTE } from "../../lib/colors.js";
import { svg } from "../../lib/dom.js";
import { clamp } from "../../lib/numbers.js";
import { composePoses, detailPath, partsOf, svgPoints, svgTransform } from "../toy/shapes.js";

/** @typedef {import("../toy/shapes.js").Pose} Pose */

/**
 * From 0 to 1 while the time goes from one value to another, with a soft start and end.
 *
 * @param {number} time
 * @param {number} from
 * @param {number} to
 */
export function ramp(time, from, to) {
  const t = clamp((time - from) / (to - from), [0, 1]);
  return t * t * (3 - 2 * t);
}

/**
 * A pose between two poses.
 *
 * @param {Pose} a
 * @param {Pose} b
 * @param {number} t
 * @returns {Pose}
 */
export function between(a, b, t) {
  const mix = (/** @type {number} */ from, /** @type {number} */ to) => from + (to - from) * t;
  return { x: mix(a.x, b.x), y: mix(a.y, b.y), angle: mix(a.angle, b.angle), size: mix(a.size, b.size) };
}

/**
 * @param {Api.ToyPart["kind"]} kind
 * @param {Pose} pose
 * @param {{ color?: string, opacity?: number, strength?: number }} [look]
 */
export function drawPart(kind, pose, { color = "var(--muted)", opacity = 1, strength = 0.3 } = {}) {
  return svg(
    "g",
    { class: "part still", transform: svgTransform(pose), opacity: opacity.toFixed(3) },
    svg("polygon", { points: svgPoints(kind), fill: color, "fill-opacity": strength }),
    svg("path", { class: "detail", d: detailPath(kind) }),
  );
}

/**
 * @param {Api.ToyWhole} whole
 * @param {Pose} pose
 * @param {{ color?: string, width?: number, opacity?: number }} [look]
 */
export function drawWhole(whole, pose, { color = PALETTE[0], width = 2, opacity = 1 } = {}) {
  const polygons = partsOf(whole).map(([kind, place]) =>
    svg("polygon", { points: svgPoints(kind), transform: svgTransform(composePoses(pose, place)) }),
  );
  const attributes = { class: "vote", fill: "none", stroke: color, opacity: opacity.toFixed(3) };
  return svg("g", { ...attributes, style: { "stroke-width": String(width) } }, polygons);
}

/**
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {{ size?: number, color?: string, opacity?: number, anchor?: string, bold?: boolean }} [look]
 */
export function word(text, x, y, { size = 0.34, color = "var(--fg)", opacity = 1, anchor = "start", bold } = {}) {
  const style = { "font-size": `${size}px`, fill: color, "font-weight": bold ? "650" : "400" };
  return svg("text", { x, y, "text-anchor": anchor, opacity: opacity.toFixed(3), class: "story-word", style }, text);
}

/**
 * A bar with a name and a number.
 *
 * @param {string} name
 * @param {number} value From 0 to 1.
 * @param {[number, number]} position
 * @param {{ color?: string, text?: string, width?: number, opacity?: number, bold?: boolean }} [look]
 */
export function bar(name, value, [x, y], { color = PALETTE[0], text = value.toFixed(2), width = 2, ...look } = {}) {
  const { opacity = 1, bold } = look;
  const box = { x, y: y - 0.2, height: 0.26, rx: 0.1 };
  return svg(
    "g",
    { opacity: opacity.toFixed(3) },
    word(name, x - 0.2, y, { size: 0.3, anchor: "end", color: bold ? "var(--fg)" : "var(--muted)", bold }),
    svg("rect", { ...box, width, fill: "var(--line)" }),
    svg("rect", { ...box, width: width * clamp(value, [0, 1]), fill: color }),
    word(text, x + width + 0.15, y, { size: 0.3, color: "var(--muted)" }),
  );
}
