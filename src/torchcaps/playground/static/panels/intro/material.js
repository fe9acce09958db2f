// @ts-check
/** What the story is drawn from: two scenes of the toy with their routing, and a digit in the network. */
import { post } from "../../lib/api.js";
import { decodeImages, paintImage } from "../../lib/images.js";

/** How far the roof turns, in degrees. */
const ROOF_TURN = 62;
const SAMPLE = 3;

/** @typedef {{ parts: Api.ToyPart[], routed: Api.ToyResponse }} Scene */
/** @typedef {{ picture: string, trace: Api.TraceResponse, classes: string[] }} Digit */
/** @typedef {{ house: Scene, turned: Scene, both: Scene, digit: Digit | null }} Story */

/**
 * @param {import("../../app.js").App} app
 * @returns {Promise<Story>}
 */
export async function loadStory(app) {
  const [house, both] = await Promise.all([loadScene("house"), loadScene("both")]);
  const parts = house.parts.map((part, n) => (n ? part : { ...part, angle: part.angle + ROOF_TURN }));
  const turned = { parts, routed: await post("toy/route", { parts, routing: "em" }) };
  return { house, turned, both, digit: await loadDigit(app) };
}

/**
 * @param {Api.SceneRequest["name"]} name
 * @returns {Promise<Scene>}
 */
async function loadScene(name) {
  const { parts } = await post("toy/scene", { name });
  return { parts, routed: await post("toy/route", { parts, routing: "em" }) };
}

/**
 * @param {import("../../app.js").App} app
 * @returns {Promise<Digit | null>} Null if the network has no routing.
 */
async function loadDigit({ info }) {
  if (info.panels.find(({ id }) => id === "routing")?.unavailable_reason) return null;
  const sample = Math.min(SAMPLE, info.samples - 1);
  const source = info.labels > 1 ? { sample, second: sample + 3 } : { sample };
  const trace = await post("routing/trace", { source });
  const canvas = document.createElement("canvas");
  paintImage(canvas, decodeImages(trace.image));
  return { picture: canvas.toDataURL(), trace, classes: info.classes };
}
