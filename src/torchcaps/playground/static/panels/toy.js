// @ts-check
/** The panel The toy: parts in a plane, their votes for houses and boats, and every number of the routing. */
import { latest, post } from "../lib/api.js";
import { el, options } from "../lib/dom.js";
import { showStatus } from "../lib/status.js";
import { completeTask } from "../lib/tasks.js";
import { Stepper } from "../lib/stepper.js";
import { PartEditor } from "./toy/partEditor.js";
import { limitPart, packParts, unpackParts } from "./toy/parts.js";
import { Readout } from "./toy/readout.js";
import { FACES, SCENES } from "./toy/scenes.js";
import { Stage } from "./toy/stage.js";

/** @typedef {import("./toy/parts.js").Part} Part */
/** @typedef {Api.SceneRequest["name"]} SceneName */
/** @typedef {NonNullable<Api.ToyRequest["routing"]>} Routing */
/** @typedef {"all" | "selected" | "none"} Votes */

/** @type {Record<Routing, string>} */
const ROUTINGS = { em: "EM", dynamic: "Dynamic" };
/** @type {Record<Votes, string>} */
const VOTES = { all: "All", selected: "Of the selected part", none: "None" };
const KEYS_HINT =
  "Drag a part, or its ring to turn it. Keys on a part: arrows move, q and e turn, + and − scale, Delete removes; " +
  "Shift makes larger steps.";
/** Activation above which a whole is there. */
const THERE = 0.5;

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "The toy",
  hint: () =>
    "Every [[part]] [[vote|votes]], in thin outlines, for the [[whole]] that it would belong to; where votes " +
    "[[agreement|agree]], the whole appears in bold. Drag or turn a part: it loses its [[coupling]], the other " +
    "parts keep theirs, and with EM the whole loses its [[activation]].",
  mount: (root, app) => new ToyPanel(root, app),
};

class ToyPanel {
  #state;
  #limits;
  #stage;
  #editor;
  /** @type {Part[]} */
  #parts = [];
  #selected = 0;
  /** Counts additions and removals, and loaded scenes: an outdated response is not shown. */
  #generation = 0;
  #loads = 0;
  /** @type {{ generation: number, response: Api.ToyResponse } | null} */
  #routed = null;
  /** @type {Part["kind"] | null} Kind of the part that the user moved last in this scene. */
  #edited = null;

  #scene = el(
    "select",
    { "aria-label": "Scene", onchange: () => this.#loadScene(/** @type {SceneName} */ (this.#scene.value)) },
    options(Object.fromEntries(Object.entries(SCENES).map(([name, { text }]) => [name, text]))),
  );
  #another = el("button", { type: "button", onclick: () => this.#loadAnother() }, "Another");
  #reset = el("button", { type: "button", onclick: () => this.#loadScene(this.#sceneName()) }, "Reset");
  #routing = el(
    "select",
    { "aria-label": "Routing", onchange: () => this.#setOption("routing", this.#routing.value) },
    options(ROUTINGS),
  );
  #votes = el("select", { "aria-label": "Votes shown", onchange: () => this.#setVotes() }, options(VOTES));
  #upsideDown = el("input", {
    type: "checkbox",
    onchange: () => this.#setOption("upsideDown", this.#upsideDown.checked || null),
  });
  #check = el("label", { class: "row check" }, this.#upsideDown, "Upside-down house");
  #stepper = new Stepper(() => this.#showIteration());
  #readout = new Readout((n) => this.#select(n, true));

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, { state, info }) {
    this.#state = state;
    this.#limits = info.limits.toy;
    this.#stage = new Stage(this.#limits, {
      onEdit: (n, change) => this.#edit(n, change),
      onSelect: (n) => this.#select(n),
      onRemove: (n) => this.#remove(n),
    });
    this.#editor = new PartEditor(this.#limits, {
      onEdit: (change) => this.#edit(this.#selected, change),
      onAdd: (kind) => this.#add(kind),
      onRemove: () => this.#remove(this.#selected),
    });
    root.append(this.#layout());
    this.#restore();
  }

  unmount() {
    this.#stepper.stop();
  }

  /** @param {string[]} changedKeys */
  onAddress(changedKeys) {
    if (changedKeys.some((key) => key.startsWith("toy."))) this.#restore();
  }

  #layout() {
    const choices = [
      el("label", { class: "choice" }, "Scene", this.#scene),
      this.#another,
      this.#reset,
      el("label", { class: "choice" }, "Router", this.#routing),
      el("label", { class: "choice" }, "Votes", this.#votes),
      this.#check,
    ];
    return el(
      "div",
      { class: "cards stage-cards" },
      el(
        "div",
        { class: "card" },
        el("div", { class: "row choices" }, choices),
        this.#stage.root,
        this.#stepper.node,
        this.#editor.root,
        el("p", { class: "muted small keys" }, KEYS_HINT),
      ),
      this.#readout.root,
    );
  }

  #route = latest(async (/** @type {number} */ generation, /** @type {unknown} */ iteration) => {
    const routing = /** @type {Routing} */ (this.#routing.value);
    const body = { parts: this.#parts, routing, upside_down: this.#upsideDown.checked };
    const response = await post("toy/route", body);
    // A response is shown also if parts have moved since the request, so that votes follow a drag.
    if (generation !== this.#generation) return;
    this.#routed = { generation, response };
    if (iteration === "begin") this.#stepper.begin(response.iterations.length);
    else this.#stepper.setCount(response.iterations.length, iteration);
    this.#checkTasks(response);
    this.#show();
  });

  /**
   * Check the tasks that this scene fulfils.
   *
   * @param {Api.ToyResponse} response
   */
  #checkTasks({ wholes, iterations }) {
    const { activations, coupling } = iterations[iterations.length - 1];
    const isThere = (/** @type {string} */ name) => {
      const j = wholes.findIndex((whole) => whole.name === name);
      return j >= 0 && activations[j] > THERE;
    };
    const scene = this.#sceneName();
    const turned = this.#edited === "triangle" && ["both", "house", "stray", "crowded"].includes(scene);
    if (turned && !isThere("house")) completeTask("roof");
    if (this.#edited && Math.max(...coupling[this.#selected]) < THERE / 2) completeTask("stray");
    if (scene === "picasso" && !isThere("face")) completeTask("picasso");
  }

  #sceneName() {
    return /** @type {SceneName} */ (this.#scene.value);
  }

  /**
   * @param {SceneName} name
   * @param {number} [seed]
   * @param {{ selected?: number, iteration?: unknown, upsideDown?: boolean }} [view] What a link names.
   */
  async #loadScene(name, seed = this.#seed(), view = {}) {
    const load = ++this.#loads;
    const scene = await post("toy/scene", { name, seed }).catch(() => null);
    if (!scene || load !== this.#loads) return;
    this.#state.set("toy.scene", name);
    this.#state.set("toy.seed", seed || null);
    this.#scene.value = name;
    this.#upsideDown.checked = view.upsideDown ?? scene.upside_down;
    this.#stepper.stop();
    this.#edited = null;
    this.#replaceParts(scene.parts, view.selected ?? 0, view.iteration ?? "begin");
  }

  #loadAnother() {
    this.#loadScene("random", (this.#seed() + 1) % this.#limits.max_seed);
  }

  #seed() {
    return this.#state.integer("toy.seed", [0, this.#limits.max_seed], 0);
  }

  /**
   * Show another set of parts.
   *
   * @param {Part[]} parts
   * @param {number} selected
   * @param {unknown} [iteration]
   */
  #replaceParts(parts, selected, iteration) {
    this.#generation += 1;
    this.#selected = Math.min(selected, parts.length - 1);
    return this.#updateParts(parts, iteration);
  }

  /**
   * @param {Part[]} parts
   * @param {unknown} [iteration]
   */
  #updateParts(parts, iteration) {
    const text = packParts(parts);
    // As precise as the address, so that a link shows the same numbers.
    this.#parts = unpackParts(text, this.#limits) ?? parts;
    this.#another.hidden = this.#scene.value !== "random";
    this.#check.hidden = FACES.includes(this.#sceneName());
    this.#state.set("toy.parts", text);
    this.#state.set("toy.upsideDown", this.#upsideDown.checked || null);
    this.#state.set("toy.selected", this.#selected || null);
    this.#show();
    return this.#route(this.#generation, iteration);
  }

  /**
   * @param {number} n
   * @param {Partial<Part>} change
   */
  #edit(n, change) {
    this.#selected = n;
    this.#edited = this.#parts[n].kind;
    // A part that moves shows the result of the routing, not its beginning.
    this.#stepper.finish();
    const edited = limitPart({ ...this.#parts[n], ...change }, this.#limits);
    this.#updateParts(this.#parts.map((part, m) => (m === n ? edited : part)));
  }

  /** @param {Part["kind"]} kind */
  #add(kind) {
    if (this.#parts.length >= this.#limits.max_parts) {
      showStatus(`At most ${this.#limits.max_parts} parts.`);
      return;
    }
    this.#replaceParts([...this.#parts, { kind, x: 0, y: 3, angle: 0, size: 1.2 }], this.#parts.length);
  }

  /** @param {number} n */
  async #remove(n) {
    if (this.#parts.length < 2) {
      showStatus("The last part cannot be removed.");
      return;
    }
    await this.#replaceParts(
      this.#parts.filter((_, m) => m !== n),
      n,
    );
    this.#stage.focusPart(this.#selected);
  }

  /**
   * @param {number} n
   * @param {boolean} [raise] Whether to put the part on top of the others.
   */
  #select(n, raise = false) {
    if (raise) this.#stage.raisePart(n);
    this.#selected = n;
    this.#state.set("toy.selected", n || null);
    this.#show();
  }

  /**
   * @param {string} key
   * @param {unknown} value
   */
  #setOption(key, value) {
    this.#state.set(`toy.${key}`, value);
    this.#stepper.stop();
    if (this.#parts.length) this.#route(this.#generation, "begin");
  }

  #setVotes() {
    this.#state.set("toy.votes", this.#votes.value);
    this.#show();
  }

  #showIteration() {
    this.#state.set("toy.iteration", this.#stepper.isAtEnd ? null : this.#stepper.at);
    this.#show();
  }

  #show() {
    // The first scene is still to come.
    if (!this.#parts.length) return;
    const response = this.#routed?.generation === this.#generation ? this.#routed.response : null;
    const [parts, selected, iteration] = [this.#parts, this.#selected, this.#stepper.at];
    // The response may have fewer iterations than the stepper while another router is loaded.
    const at = response ? Math.min(iteration, response.iterations.length - 1) : iteration;
    this.#stage.show({ parts, selected, response, iteration: at, votes: /** @type {Votes} */ (this.#votes.value) });
    this.#editor.show(parts, selected);
    if (response) this.#readout.show(response, at, parts, selected, SCENES[this.#sceneName()].lesson);
  }

  /** Show what the address names. */
  #restore() {
    const scene = this.#state.choice("toy.scene", /** @type {SceneName[]} */ (Object.keys(SCENES)), "both");
    this.#scene.value = scene;
    this.#routing.value = this.#state.choice("toy.routing", Object.keys(ROUTINGS), "em");
    this.#votes.value = this.#state.choice("toy.votes", Object.keys(VOTES), "all");
    const stored = this.#state.get("toy.upsideDown");
    const upsideDown = typeof stored === "boolean" ? stored : undefined;
    this.#upsideDown.checked = upsideDown ?? false;
    this.#edited = null;
    this.#stepper.stop();
    this.#loads += 1;
    const text = this.#state.get("toy.parts");
    const parts = text === null ? null : unpackParts(text, this.#limits);
    const iteration = this.#state.get("toy.iteration", "begin");
    const selected = this.#state.integer("toy.selected", [0, this.#limits.max_parts], 0);
    this.#another.hidden = scene !== "random";
    if (parts) this.#replaceParts(parts, selected, iteration);
    else this.#loadScene(scene, undefined, { selected, iteration, upsideDown });
  }
}
