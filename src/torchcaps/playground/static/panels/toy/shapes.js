// @ts-check
/** Outlines of the parts in their own frame, and poses in the plane; the y axis points down. */

/** @typedef {{ x: number, y: number, angle: number, size: number }} Pose */
/** @typedef {[number, number]} Point */
/** @typedef {Api.ToyPart["kind"]} Kind */

/** @type {Record<Kind, Point[]>} */
const OUTLINES = {
  triangle: [
    [0, -0.55],
    [1.1, 0.55],
    [-1.1, 0.55],
  ],
  rectangle: [
    [-1, -0.5],
    [1, -0.5],
    [1, 0.5],
    [-1, 0.5],
  ],
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
