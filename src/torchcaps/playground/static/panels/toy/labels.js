// @ts-check
/** Names of the wholes: beside their outlines, inside the stage, and not on top of anything else. */
import { setAttributes, svg } from "../../lib/dom.js";
import { clamp } from "../../lib/numbers.js";

/** @typedef {import("./shapes.js").Point} Point */
/** @typedef {Point[]} Shape A convex polygon. */
/** @typedef {[number, number]} Size */

const GAP = 0.16;
/** Wholes below this activation have no name. */
const MIN_ACTIVATION = 0.5;

/**
 * Whether two convex shapes intersect: they do not if an edge of one of them separates them.
 *
 * @param {Shape} a
 * @param {Shape} b
 */
function intersect(a, b) {
  return ![a, b].some((shape) =>
    shape.some((start, n) => {
      const end = shape[(n + 1) % shape.length];
      const [lowA, highA] = extent(a, start, end);
      const [lowB, highB] = extent(b, start, end);
      return highA < lowB || highB < lowA;
    }),
  );
}

/**
 * The extent of a shape across an edge.
 *
 * @param {Shape} shape
 * @param {Point} start
 * @param {Point} end
 */
function extent(shape, [x, y], [toX, toY]) {
  const across = shape.map((point) => point[0] * (y - toY) + point[1] * (toX - x));
  return [Math.min(...across), Math.max(...across)];
}

/**
 * A rectangle about a point.
 *
 * @param {Point} center
 * @param {Size} size
 * @returns {Shape}
 */
export function boxAt([x, y], [width, height]) {
  const [dx, dy] = [width / 2, height / 2];
  return [
    [x - dx, y - dy],
    [x + dx, y - dy],
    [x + dx, y + dy],
    [x - dx, y + dy],
  ];
}

/**
 * Places below, above, left and right of a set of points, inside the stage.
 *
 * @param {Point[]} points
 * @param {Size} size
 * @param {Api.ToyLimits} limits
 * @returns {Point[]}
 */
function placesBeside(points, [width, height], limits) {
  const [left, top] = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  const places = [
    [x, bottom + GAP + height / 2],
    [x, top - GAP - height / 2],
    [left - GAP - width / 2, y],
    [right + GAP + width / 2, y],
  ];
  return places.map((place) => [
    clamp(place[0], [limits.x[0] + width / 2, limits.x[1] - width / 2]),
    clamp(place[1], [limits.y[0] + height / 2, limits.y[1] - height / 2]),
  ]);
}

/**
 * Write the names of the active wholes. Without a free place a name is below its whole.
 *
 * @param {SVGGElement} layer
 * @param {{ name: string, color: string, activation: number, outlines: Shape[] }[]} wholes
 * @param {Shape[]} obstacles
 * @param {Api.ToyLimits} limits
 */
export function drawLabels(layer, wholes, obstacles, limits) {
  const active = wholes.filter(({ activation }) => activation >= MIN_ACTIVATION);
  const covered = [...obstacles];
  const texts = active.map(({ name, color }) =>
    svg("text", { class: "whole-name", style: { "--color": color } }, name),
  );
  layer.replaceChildren(...texts);
  active.forEach((whole, n) => {
    const { width, height } = texts[n].getBBox();
    const others = active.filter((other) => other !== whole).flatMap((other) => other.outlines);
    const shapes = [...covered, ...others];
    const places = placesBeside(whole.outlines.flat(), [width, height], limits);
    const isFree = (/** @type {Point} */ place) =>
      !shapes.some((shape) => intersect(boxAt(place, [width, height]), shape));
    const [x, y] = places.find(isFree) ?? places[0];
    setAttributes(texts[n], { x: x.toFixed(3), y: y.toFixed(3) });
    covered.push(boxAt([x, y], [width, height]));
  });
}
