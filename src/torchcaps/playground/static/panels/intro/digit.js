// @ts-check
/** The last chapter: a digit, its primary capsules, and the class capsules that they vote for. */
import { PALETTE } from "../../lib/colors.js";
import { svg } from "../../lib/dom.js";
import { argmax } from "../../lib/numbers.js";
import { bar, ramp, word } from "./drawing.js";

/** Left and top of the picture, and its side. */
const [LEFT, TOP, SIDE] = [-5.6, -2.3, 4.6];
const MAX_CLASSES = 10;

/**
 * @param {import("./material.js").Digit | null} digit
 * @param {number} time
 */
export function drawDigit(digit, time) {
  if (!digit) return [word("This network has no capsules.", 0, 0, { anchor: "middle" })];
  const { picture, trace, classes } = digit;
  const [own] = trace.traces;
  const lengths = own.activations[own.activations.length - 1];
  const relevance = own.relevance[own.relevance.length - 1];
  const most = Math.max(1e-9, ...relevance);
  const best = argmax(lengths);
  const shown = classes.map((_, n) => n).slice(0, MAX_CLASSES);
  const rowY = (/** @type {number} */ n) => -2.4 + (5.4 / Math.max(shown.length - 1, 1)) * shown.indexOf(n);
  const places = trace.places.map(([row, column]) => [LEFT + column * SIDE, TOP + row * SIDE]);
  const votes = ramp(time, 0.25, 0.5);
  const lines = places.flatMap(([x, y], p) =>
    shown.map((n) => {
      const isBest = n === best;
      const strength = isBest ? relevance[p] / most : 0.15;
      const end = [x + (1.9 - x) * votes, y + (rowY(n) - 0.07 - y) * votes];
      return svg("line", {
        x1: x,
        y1: y,
        x2: end[0],
        y2: end[1],
        stroke: isBest && time > 0.5 ? PALETTE[0] : "var(--muted)",
        "stroke-width": isBest && time > 0.5 ? 0.02 + 0.05 * strength : 0.012,
        "stroke-opacity": (votes * (isBest && time > 0.5 ? 0.35 + 0.5 * strength : 0.16)).toFixed(3),
      });
    }),
  );
  return [
    svg("rect", { x: LEFT, y: TOP, width: SIDE, height: SIDE, rx: 0.2, class: "story-box" }),
    svg("image", { href: picture, x: LEFT, y: TOP, width: SIDE, height: SIDE, class: "story-image" }),
    ...lines,
    ...places.map(([cx, cy]) => svg("circle", { cx, cy, r: 0.11 * ramp(time, 0.1, 0.25), fill: PALETTE[0] })),
    word("primary capsules", LEFT, TOP - 0.3, { size: 0.3, color: "var(--muted)" }),
    word("class capsules", 1.9, TOP - 0.75, { size: 0.3, color: "var(--muted)" }),
    ...shown.map((n) => {
      const value = lengths[n] * ramp(time, 0.5, 0.75);
      const name = classes[n].length > 8 ? `${classes[n].slice(0, 7)}…` : classes[n];
      return bar(name, value, [2.5, rowY(n)], {
        color: n === best ? PALETTE[0] : "var(--muted)",
        width: 1.9,
        bold: n === best && time > 0.6,
      });
    }),
  ];
}
