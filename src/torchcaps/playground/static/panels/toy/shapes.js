// @ts-check
/** Outlines of the parts in their own frame, and poses in the plane; the y axis points down. */

import { indices } from "../../lib/numbers.js";

/** @typedef {{ x: number, y: number, angle: number, size: number }} Pose */
/** @typedef {[number, number]} Point */
/** @typedef {Api.ToyPart["kind"]} Kind */

/**
 * The corners of a closed curve (x(t), y(t)), t from 0 to 2 pi.
 *
 * @param {(t: number) => Point} curve
 * @param {number} [count]
 */
const curveCorners = (curve, count = 24) => indices(count).map((n) => curve((2 * Math.PI * n) / count));

/**
 * A rectangle about the origin.
 *
 * @param {number} width
 * @param {number} height
 * @returns {Point[]}
 */
const box = (width, height) => [
  [-width / 2, -height / 2],
  [width / 2, -height / 2],
  [width / 2, height / 2],
  [-width / 2, height / 2],
];

const EYE = curveCorners((t) => [0.45 * Math.cos(t), 0.25 * Math.sin(t) * Math.abs(Math.sin(t)) ** 0.3]);

/** @type {Record<Kind, Point[]>} */
const OUTLINES = {
  triangle: [
    [0, -0.55],
    [1.1, 0.55],
    [-1.1, 0.55],
  ],
  rectangle: box(2, 1),
  door: box(0.46, 0.66),
  window: box(0.56, 0.5),
  "left eye": EYE,
  "right eye": EYE,
  nose: [
    [-0.05, -0.42],
    [0.1, -0.42],
    [0.32, 0.34],
    [0.2, 0.42],
    [-0.24, 0.42],
    [-0.28, 0.3],
  ],
  mouth: curveCorners((t) => [0.62 * Math.cos(t), 0.2 * Math.sin(t) + 0.16 * (1 - Math.cos(t) ** 2) - 0.1]),
};

/** Lines inside a part that show how it is turned, as SVG paths. */
/** @type {Partial<Record<Kind, string>>} */
const DETAILS = {
  door: "M0.12 0.03h0.01M-0.23 -0.2H0.23",
  window: "M-0.28 0H0.28M0 -0.25V0.25M-0.34 0.25H0.34",
  "left eye": "M-0.14 0a0.14 0.14 0 1 0 0.28 0a0.14 0.14 0 1 0 -0.28 0M-0.42 -0.36Q0 -0.62 0.42 -0.46",
  "right eye": "M-0.14 0a0.14 0.14 0 1 0 0.28 0a0.14 0.14 0 1 0 -0.28 0M0.42 -0.36Q0 -0.62 -0.42 -0.46",
  nose: "M-0.14 0.3h0.06M0.1 0.3h0.06",
  mouth: "M-0.62 -0.1Q0 0.22 0.62 -0.1",
};
/** Outline of a whole beside that of its parts, as an SVG path. */
/** @type {Partial<Record<Api.ToyWhole["name"], string>>} */
const FRAMES = {
  face: "M0 -1.5C1 -1.5 1.5 -0.8 1.4 0.1C1.3 1 0.7 1.7 0 1.7C-0.7 1.7 -1.3 1 -1.4 0.1C-1.5 -0.8 -1 -1.5 0 -1.5Z",
};

/**
 * The pose in the plane of something that has a pose inside a frame.
 *
 * @param {Pose} frame
 * @param {Pose} pose
 * @returns {Pose}
 */
export function composePoses(frame, pose) {
  const angle = (frame.angle * Math.PI) / 180;
  const [cos, sin] = [Math.cos(angle) * frame.size, Math.sin(angle) * frame.size];
  return {
    x: frame.x + cos * pose.x - sin * pose.y,
    y: frame.y + sin * pose.x + cos * pose.y,
    angle: frame.angle + pose.angle,
    size: frame.size * pose.size,
  };
}

/**
 * A point of a frame in the plane.
 *
 * @param {Pose} frame
 * @param {Point} point
 * @returns {Point}
 */
export function toPlane(frame, [x, y]) {
  const pose = composePoses(frame, { x, y, angle: 0, size: 1 });
  return [pose.x, pose.y];
}

/**
 * The SVG transform of a pose.
 *
 * @param {Pose} pose
 */
export function svgTransform({ x, y, angle, size }) {
  return `translate(${x.toFixed(3)} ${y.toFixed(3)}) rotate(${angle.toFixed(2)}) scale(${size.toFixed(4)})`;
}

/**
 * The outline of a part in the plane.
 *
 * @param {Kind} kind
 * @param {Pose} pose
 */
export function outline(kind, pose) {
  return OUTLINES[kind].map((corner) => toPlane(pose, corner));
}

/**
 * The corners of a part in its own frame, for SVG.
 *
 * @param {Kind} kind
 */
export function svgPoints(kind) {
  return OUTLINES[kind].map((corner) => corner.join(",")).join(" ");
}

/**
 * The parts of a whole with their poses in its frame.
 *
 * @param {Api.ToyWhole} whole
 */
export function partsOf({ places }) {
  return /** @type {[Kind, Pose][]} */ (Object.entries(places));
}

/**
 * The lines inside a part, for SVG.
 *
 * @param {Kind} kind
 */
export const detailPath = (kind) => DETAILS[kind] ?? "";

/**
 * The frame of a whole, for SVG.
 *
 * @param {Api.ToyWhole["name"]} name
 */
export const framePath = (name) => FRAMES[name] ?? "";
