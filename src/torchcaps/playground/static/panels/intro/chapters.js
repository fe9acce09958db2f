// @ts-check
/** The chapters of the story: the shapes of the toy first, a digit in the network last. All numbers are computed. */
import { NO_WHOLE, PALETTE } from "../../lib/colors.js";
import { svg } from "../../lib/dom.js";
import { argmax, fixed } from "../../lib/numbers.js";
import { shareOfNone } from "../toy/stage.js";
import { bar, between, drawPart, drawWhole, ramp, word } from "./drawing.js";
import { drawDigit } from "./digit.js";

/** @typedef {import("./material.js").Story} Story */
/** @typedef {import("../toy/shapes.js").Pose} Pose */

const [BLUE, ORANGE] = PALETTE;
const KEYS = /** @type {const} */ (["x", "y", "angle", "size"]);

/** @type {import("./player.js").Chapter[]} */
export const CHAPTERS = [
  {
    title: "A capsule",
    text:
      "A neuron gives one number. A [[capsule]] is a group of neurons for one thing, here a roof, and gives a " +
      "vector: is it there ([[activation]]), and how ([[pose]])?",
    seconds: 9,
    draw: (_, time) => drawCapsule(POSES[0], ramp(time, 0.15, 0.4), ramp(time, 0.5, 0.8)),
  },
  {
    title: "A pose",
    text:
      "Move, turn or enlarge the roof: the [[pose]] follows, and the [[activation]] stays. A [[max-pooling]] " +
      "detector would only say: a roof, somewhere.",
    seconds: 10,
    draw: (_, time) => drawCapsule(poseAt(time), 1, 1),
  },
  {
    title: "A vote",
    text:
      "A roof knows where its house must be. Its [[vote]] is the pose of that house, computed from its own pose. " +
      "Walls, door and window vote too.",
    seconds: 10,
    draw: drawVotes,
  },
  {
    title: "Agreement",
    text:
      "The four votes [[agreement|agree]]: there is a house. Turn the roof, and its vote swings away: the right " +
      "parts are still there, but no longer in the right places.",
    seconds: 11,
    draw: drawAgreement,
  },
  {
    title: "Coupling",
    text:
      "Which parts belong together? [[routing|Routing]] starts with equal shares. Votes that agree attract more " +
      "[[coupling]], the others lose it, [[iteration]] by iteration.",
    seconds: 10,
    draw: drawCoupling,
  },
  {
    title: "A digit",
    text:
      "A network learns its parts and votes from images. [[primary capsule|Primary capsules]] look at places of " +
      "the image and vote for classes; the longest [[class capsule]] is the prediction.",
    seconds: 10,
    draw: ({ digit }, time) => drawDigit(digit, time),
  },
];

/** @type {Pose[]} Stations of the roof. */
const POSES = [
  { x: -3, y: 0, angle: 0, size: 1.5 },
  { x: -3.6, y: -1.4, angle: 0, size: 1.5 },
  { x: -3.2, y: 0.6, angle: 70, size: 1.5 },
  { x: -3, y: 0.2, angle: 20, size: 0.9 },
  { x: -3, y: 0, angle: 0, size: 1.5 },
];

/** @param {number} time */
function poseAt(time) {
  const at = Math.min(time * (POSES.length - 1), POSES.length - 1.0001);
  const from = Math.floor(at);
  return between(POSES[from], POSES[from + 1], ramp(at - from, 0.1, 0.9));
}

/**
 * @param {Pose} pose
 * @param {number} present
 * @param {number} shown How far the pose is shown.
 */
function drawCapsule(pose, present, shown) {
  const ranges = { x: [-6, 0], y: [-3, 3], angle: [-90, 90], size: [0.5, 2] };
  const texts = {
    x: fixed(pose.x, 1),
    y: fixed(pose.y, 1),
    angle: `${Math.round(pose.angle)}°`,
    size: fixed(pose.size, 1),
  };
  return [
    drawPart("triangle", pose, { color: BLUE, opacity: present }),
    svg("rect", { x: 0.3, y: -2.5, width: 5.3, height: 5, rx: 0.5, class: "story-box" }),
    word("capsule of the roof", 0.7, -1.85, { bold: true }),
    bar("activation", present, [2.6, -1], { color: PALETTE[2], width: 1.9, bold: true }),
    word("pose", 0.7, -0.3, { size: 0.3, color: "var(--muted)", opacity: shown }),
    ...KEYS.map((key, n) => {
      const [low, high] = ranges[key];
      const look = { text: texts[key], opacity: shown, width: 1.9 };
      return bar(key, (pose[key] - low) / (high - low), [2.6, 0.3 + 0.58 * n], look);
    }),
  ];
}

/**
 * A pose moved to the right; the house of the toy is on the left.
 *
 * @param {Pose} pose
 * @param {number} [dx]
 * @returns {Pose}
 */
const shift = ({ x, y, angle, size }, dx = 2.5) => ({ x: x + dx, y: y + 0.2, angle, size });

/**
 * @param {Story} story
 * @param {number} time
 */
function drawVotes({ house: { parts, routed } }, time) {
  const [whole] = routed.wholes;
  const apart = 1 - ramp(time, 0.72, 0.95);
  const outlines = parts.map((_, i) => {
    const start = 0.08 + 0.15 * i;
    const vote = shift(routed.votes[i][0]);
    const out = { ...vote, x: vote.x + apart * OFFSETS[i][0], y: vote.y + apart * OFFSETS[i][1] };
    return drawWhole(whole, out, { opacity: 0.75 * ramp(time, start, start + 0.12), width: 1.6 });
  });
  return [
    ...parts.map((part, i) => {
      const pose = shift(part);
      const out = { ...pose, x: pose.x + apart * OFFSETS[i][0], y: pose.y + apart * OFFSETS[i][1] };
      const lit = ramp(time, 0.08 + 0.15 * i, 0.16 + 0.15 * i);
      return drawPart(part.kind, out, { color: lit > 0.5 ? BLUE : NO_WHOLE });
    }),
    ...outlines,
    word("each part: “the house is here”", 0, 3.3, {
      anchor: "middle",
      color: "var(--muted)",
      opacity: ramp(time, 0.3, 0.5),
    }),
  ];
}

/** Where the parts begin, away from their places. */
const OFFSETS = [
  [-3.2, 0.4],
  [2.7, 1.1],
  [3.3, -1.9],
  [-3.1, 1.3],
];

/**
 * @param {Story} story
 * @param {number} time
 */
function drawAgreement({ house, turned }, time) {
  const turn = ramp(time, 0.4, 0.65);
  const final = (/** @type {import("./material.js").Scene} */ scene) =>
    scene.routed.iterations[scene.routed.iterations.length - 1];
  const [before, after] = [final(house), final(turned)];
  const [whole] = house.routed.wholes;
  // Between both scenes the numbers are interpolated for the eye.
  const mix = (/** @type {number} */ a, /** @type {number} */ b) => a + (b - a) * turn;
  const activation = mix(before.activations[0], after.activations[0]) * ramp(time, 0.05, 0.2);
  return [
    ...house.parts.map((part, i) => {
      const coupled = mix(before.coupling[i][0], after.coupling[i][0]) > 0.5;
      return drawPart(part.kind, shift(between(part, turned.parts[i], turn), 1), { color: coupled ? BLUE : NO_WHOLE });
    }),
    ...house.routed.votes.map((row, i) =>
      drawWhole(whole, shift(between(row[0], turned.routed.votes[i][0], turn), 1), {
        color: i === 0 && turn > 0.3 ? ORANGE : BLUE,
        width: 1.4,
        opacity: 0.8,
      }),
    ),
    drawWhole(whole, shift(before.poses[0], 1), { width: 5, opacity: activation }),
    bar("house", activation, [3.1, -1.1], { bold: true }),
    word("activation of the house", 2.2, -1.75, { size: 0.3, color: "var(--muted)" }),
    bar("house", turned.routed.wholes[0].pooled, [3.1, 1.1], { color: NO_WHOLE, opacity: ramp(time, 0.7, 0.8) }),
    word("max-pooling detector", 2.2, 0.45, { size: 0.3, color: "var(--muted)", opacity: ramp(time, 0.7, 0.8) }),
  ];
}

/**
 * @param {Story} story
 * @param {number} time
 */
function drawCoupling({ both: { parts, routed } }, time) {
  const { wholes, iterations } = routed;
  const at = Math.min(iterations.length - 1, Math.floor(Math.max(0, time - 0.15) * 1.3 * iterations.length));
  const { coupling, activations, poses } = iterations[at];
  const targets = [
    { x: -2.6, color: BLUE, name: wholes[0].name },
    { x: 2.6, color: ORANGE, name: wholes[1].name },
    { x: 0, color: NO_WHOLE, name: "no whole" },
  ];
  const lines = parts.flatMap((part, i) => {
    const shares = [...coupling[i], shareOfNone(coupling[i])];
    return shares.map((share, j) => {
      const ends = { x1: part.x * 0.8, y1: part.y * 0.8 + 0.7, x2: targets[j].x, y2: -2.75 };
      const look = { "stroke-width": 0.01 + 0.1 * share, "stroke-opacity": (0.85 * share).toFixed(3) };
      return svg("line", { ...ends, ...look, stroke: targets[j].color });
    });
  });
  const small = (/** @type {Pose} */ { x, y, angle, size }) => ({
    x: x * 0.8,
    y: y * 0.8 + 0.7,
    angle,
    size: size * 0.8,
  });
  return [
    ...lines,
    ...parts.map((part, i) => {
      const best = argmax([...coupling[i], shareOfNone(coupling[i])]);
      const isEven = Math.max(...coupling[i]) < 0.6;
      return drawPart(part.kind, small(part), { color: isEven ? NO_WHOLE : targets[best].color });
    }),
    ...wholes.map((whole, j) =>
      drawWhole(whole, small(poses[j]), {
        color: PALETTE[j],
        width: 4,
        opacity: activations[j] * ramp(time, 0.1, 0.2),
      }),
    ),
    ...targets.map(({ x, color, name }) => word(name, x, -2.9, { anchor: "middle", color, bold: true })),
    word(`iteration ${at + 1} of ${iterations.length}`, 0, 3.35, {
      anchor: "middle",
      size: 0.3,
      color: "var(--muted)",
    }),
  ];
}
