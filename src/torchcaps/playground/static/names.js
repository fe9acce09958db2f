// Where the names of wholes stand: beside their outlines, inside the stage, and on nothing else.
import { el } from "./dom.js";
import { BOUNDS, clamp } from "./parts.js";

const GAP = 0.16;

// Whether two convex shapes meet: they do not where an edge of either has them on its two sides.
function meet(one, other) {
  return ![one, other].some((shape) => shape.some(([x, y], n) => {
    const [toX, toY] = shape[(n + 1) % shape.length];
    const reach = (points) => {
      const across = points.map((point) => point[0] * (y - toY) + point[1] * (toX - x));
      return [Math.min(...across), Math.max(...across)];
    };
    const [[low, high], [least, most]] = [reach(one), reach(other)];
    return high < least || most < low;
  }));
}

export const boxAt = ([x, y], [width, height]) => [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([h, v]) => [x + h * width / 2, y + v * height / 2]);

// Below, above, left and right of an outline, all inside the stage.
function beside(corners, [width, height]) {
  const [left, top] = [0, 1].map((axis) => Math.min(...corners.map((corner) => corner[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...corners.map((corner) => corner[axis])));
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  const spots = [
    [x, bottom + GAP + height / 2], [x, top - GAP - height / 2], [left - GAP - width / 2, y], [right + GAP + width / 2, y],
  ];
  return spots.map((spot) => [[spot[0], width, BOUNDS.x], [spot[1], height, BOUNDS.y]].map(([value, size, [low, high]]) =>
    clamp(value, [low + size / 2, high - size / 2])));
}

// wholes: [{name, colour, strength, outlines}], of which those are named that are there; taken: shapes of other things.
// Where no side is free, a name stands below.
export function drawNames(layer, wholes, taken) {
  const there = wholes.filter(({ strength }) => strength >= 0.5);
  const covered = [...taken];
  const texts = there.map(({ name, colour }) => el("text", { class: "whole-name", style: { "--colour": colour } }, name));
  layer.replaceChildren(...texts);
  there.forEach(({ outlines }, n) => {
    const { width, height } = texts[n].getBBox();
    const others = there.filter((_, m) => m !== n).flatMap((other) => other.outlines);
    const free = (spot) => ![...covered, ...others].some((shape) => meet(boxAt(spot, [width, height]), shape));
    const spots = beside(outlines.flat(), [width, height]);
    const [x, y] = spots.find(free) ?? spots[0];
    texts[n].setAttribute("x", x.toFixed(3));
    texts[n].setAttribute("y", y.toFixed(3));
    covered.push(boxAt([x, y], [width, height]));
  });
}
