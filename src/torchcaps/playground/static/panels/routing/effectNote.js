// @ts-check
/** What routing changes in this network, measured, and a network and image where it matters. */
import { currentNetwork, post } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { explain } from "../../lib/glossary.js";
import { currentSamples } from "../../lib/imageSource.js";
import { completeTask } from "../../lib/tasks.js";

/** Share of predictions below which routing changes little. */
const LITTLE = 0.05;

/** @type {Map<string, Promise<Api.EffectResponse>>} */
const effects = new Map();

/** Measured once for each network; a failed request is made again. */
function loadEffect() {
  const key = currentNetwork();
  const request = effects.get(key) ?? post("routing/effect", {});
  effects.set(key, request);
  request.catch(() => effects.delete(key));
  return request;
}

export class EffectNote {
  #app;
  root = el("div", { class: "note effect pending", id: "effect" }, el("p", {}, "Measuring what routing changes …"));

  /** @param {import("../../app.js").App} app */
  constructor(app) {
    this.#app = app;
  }

  async update() {
    const effect = await loadEffect().catch(() => null);
    if (!this.root.isConnected) return;
    this.root.hidden = !effect;
    if (!effect) return;
    const [sample] = currentSamples(this.#app);
    const isExample = sample !== undefined && effect.samples.includes(sample);
    if (isExample) completeTask("matters");
    this.root.replaceChildren(
      el("p", {}, explain(`${this.#sentence(effect)} ${isExample ? "This image is one of them." : ""}`)),
      isExample ? "" : this.#offer(effect),
    );
    this.root.classList.remove("pending");
  }

  /** @param {Api.EffectResponse} effect */
  #sentence({ images, share }) {
    const percent = `with uniform [[coupling]], ${Math.round(100 * share)} % of ${images} predictions change`;
    return share < LITTLE
      ? `In this network [[routing]] changes little: ${percent}. The answer is there after iteration 1.`
      : `In this network [[routing]] matters: ${percent}.`;
  }

  /**
   * A button that opens an image where routing changes the prediction: here, or in another network.
   *
   * @param {Api.EffectResponse} effect
   */
  #offer({ share, samples, example }) {
    const here = share >= LITTLE && samples.length > 0;
    if (!here && !example) return "";
    const { networks } = this.#app.info;
    const view = here || !example ? {} : { network: example.network === networks[0].name ? null : example.network };
    const input = here || !example ? samples[0] : example.sample;
    const where = here || !example ? "" : ` (network ${example.network}, ${Math.round(100 * example.share)} %)`;
    const open = () => {
      this.#app.open({ ...view, input, "routing.b": "own_uniform", "routing.parent": null, "routing.iteration": null });
    };
    return el(
      "button",
      { type: "button", id: "show-example", onclick: open },
      `Show an image where it matters${where}`,
    );
  }
}
