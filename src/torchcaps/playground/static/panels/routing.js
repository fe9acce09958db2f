// @ts-check
/** The panel Routing: coupling, votes and poses by iteration, for one or two routers on the same votes. */
import { latest, post } from "../lib/api.js";
import { el, options } from "../lib/dom.js";
import { ImagePicker } from "../lib/imagePicker.js";
import { imageSource } from "../lib/imageSource.js";
import { decodeImages } from "../lib/images.js";
import { indices } from "../lib/numbers.js";
import { Stepper } from "../lib/stepper.js";
import { completeTask } from "../lib/tasks.js";
import { CapsuleMap } from "./routing/capsuleMap.js";
import { EffectNote } from "./routing/effectNote.js";
import { RouterCard } from "./routing/routerCard.js";

const OWN = "own";
const OWN_UNIFORM = "own_uniform";
const DEFAULT_ITERS = 3;
const ITERS_HINT = "The network's own routing has as many iterations as in training.";

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Routing",
  hint: () =>
    "Every dot is a [[primary capsule]] and its [[vote]] for the selected class; its colour is its [[coupling]] to " +
    "that class. Step through the [[iteration|iterations]], and see how far the coupling leaves the uniform share, " +
    "and what a second [[router]] does with the same votes.",
  mount: (root, app) => new RoutingPanel(root, app),
};

/**
 * What a router has to do with the network.
 *
 * @param {string} name
 * @param {string} own The router of the network.
 */
function trainingOf(name, own) {
  if (name === OWN_UNIFORM) return "The prediction of the network without routing: every capsule has uniform coupling.";
  return [OWN, own].includes(name)
    ? "Trained with this router."
    : "Not trained with this router: ignore its prediction.";
}

class RoutingPanel {
  #root;
  #app;
  #cards;
  #picker;
  /** @type {Api.RoutersResponse | null} */
  #routers = null;
  /** @type {Api.TraceResponse | null} */
  #response = null;
  #effect;
  #map = new CapsuleMap();
  /** @type {string | null} Input and routers whose routing was played. */
  #played = null;
  /** Whether the user moved between iterations of this routing. */
  #stepped = false;
  #stepper = new Stepper(() => {
    if (!this.#stepper.isPlaying) this.#stepped = true;
    this.#showIteration();
  });
  #iters = el("select", { id: "iters", onchange: () => this.#set("iters", Number(this.#iters.value)) });

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    this.#picker = new ImagePicker(app, (input) => this.#choose(input), { count: 10 });
    this.#effect = new EffectNote(app);
    this.#cards = ["a", "b"].map(
      (side) =>
        new RouterCard(side, app.info.classes, {
          onRouter: (name) => this.#set(side, name || null),
          onClass: (label) => this.#set("parent", label),
        }),
    );
    this.#iters.append(...indices(app.info.limits.routing.max_iters).map((n) => el("option", {}, String(n + 1))));
    root.append(this.#layout());
    this.#load();
  }

  onAddress() {
    this.#picker.update();
    this.#load();
  }

  unmount() {
    this.#stepper.stop();
  }

  #layout() {
    const controls = el(
      "div",
      { class: "card controls" },
      this.#stepper.node,
      el("label", { class: "row" }, "Iterations", this.#iters),
    );
    return el(
      "div",
      { class: "routing" },
      this.#map.root,
      el("div", { class: "card picker-card" }, el("h2", {}, "Another image"), this.#picker.root),
      el(
        "div",
        { class: "main" },
        this.#effect.root,
        controls,
        el(
          "div",
          { class: "router-cards" },
          this.#cards.map((card) => card.root),
        ),
      ),
    );
  }

  /**
   * @param {string} key
   * @param {unknown} value
   */
  #set(key, value) {
    this.#app.state.set(`routing.${key}`, value);
    this.#load();
  }

  /** @param {number | "drawing" | "upload"} input */
  #choose(input) {
    this.#app.state.set("input", input);
    this.#picker.update();
    this.#set("parent", null);
  }

  /** The routers to choose from, requested once; a failed request is made again. */
  async #loadRouters() {
    if (this.#routers) return this.#routers;
    const loaded = await post("routing/routers", {});
    const names = Object.fromEntries(loaded.routers.map((name) => [name, name.replace("_", "-")]));
    const own = { [OWN]: `The network's own (${loaded.own.replace("_", "-")})` };
    const even = { [OWN_UNIFORM]: "The same, with uniform coupling" };
    this.#cards[0].select.replaceChildren(...options({ ...own, ...names }));
    this.#cards[1].select.replaceChildren(...options({ "": "Compare with …", ...own, ...even, ...names }));
    this.#routers = loaded;
    return loaded;
  }

  /**
   * The names of one or two routers.
   *
   * @param {string[]} known
   */
  #selectedRouters(known) {
    const first = this.#app.state.choice("routing.a", [OWN, ...known], OWN);
    const second = this.#app.state.choice("routing.b", [OWN, OWN_UNIFORM, ...known, ""], "");
    return second ? [first, second] : [first];
  }

  #load = latest(async () => {
    const { state, info } = this.#app;
    const { routers: known, own } = await this.#loadRouters();
    const routers = this.#selectedRouters(known);
    const iters = state.integer("routing.iters", [1, info.limits.routing.max_iters], DEFAULT_ITERS);
    const parent = state.get("routing.parent");
    const isClass = Number.isInteger(parent) && parent >= 0 && parent < info.classes.length;
    const body = { source: imageSource(this.#app), routers, iters, ...(isClass && { parent }) };
    const response = await post("routing/trace", body);
    if (!this.#root.isConnected) return;
    this.#response = response;
    this.#iters.value = String(iters);
    this.#iters.disabled = routers.every((name) => name === OWN || name === OWN_UNIFORM);
    this.#iters.title = this.#iters.disabled ? ITERS_HINT : "";
    this.#map.show(decodeImages(response.image), response, info.classes);
    this.#cards.forEach((card, n) => {
      card.select.value = routers[n] ?? "";
      card.show(response, response.traces[n], trainingOf(routers[n], own));
    });
    const count = Math.max(...response.traces.map(({ path }) => path.length));
    const iteration = state.get("routing.iteration");
    const played = JSON.stringify([body.source, routers, iters]);
    if (iteration === null && played !== this.#played) this.#stepper.begin(count);
    else this.#stepper.setCount(count, iteration ?? undefined);
    this.#played = played;
    this.#showIteration();
    this.#effect.update();
  });

  #showIteration() {
    const { at, isAtEnd } = this.#stepper;
    if (at > 0 && isAtEnd && this.#stepped) completeTask("step");
    this.#app.state.set("routing.iteration", isAtEnd ? null : at);
    if (!this.#response) return;
    for (const card of this.#cards) card.showIteration(at);
    this.#map.showIteration(at);
  }
}
