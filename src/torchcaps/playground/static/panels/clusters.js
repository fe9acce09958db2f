// @ts-check
/** The panel Clusters: EM and k-means on points of a plane, iteration by iteration. */
import { latest, post } from "../lib/api.js";
import { el, options } from "../lib/dom.js";
import { decodeBytes } from "../lib/images.js";
import { showStatus } from "../lib/status.js";
import { Stepper } from "../lib/stepper.js";
import { completeTask } from "../lib/tasks.js";
import { ClusterOptions } from "./clusters/options.js";
import { Plane } from "./clusters/plane.js";
import { packPoints, unpackPoints } from "./clusters/points.js";
import { ClusterReadout } from "./clusters/readout.js";

/** @typedef {import("./clusters/points.js").Point} Point */
/** @typedef {Api.PresetRequest["name"]} PresetName */

/** @type {Record<PresetName, string>} */
const PRESETS = {
  "two blobs": "Two blobs",
  "three blobs and outliers": "Three blobs and outliers",
  ring: "A ring",
  stretched: "Stretched",
};
/** Distance of an outlier from all other points. */
const FAR = 0.3;
const FIRST_PRESET = "three blobs and outliers";
const KEYS_HINT =
  "Click to add a point, drag to move one, double-click to remove one. Keys: arrows move the cross, Enter adds a " +
  "point, Delete removes the nearest.";

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Clusters",
  hint: () =>
    "Every point is a [[part]] that [[vote|votes]] for its own position, and every [[cluster]] is a [[whole]]: " +
    "step through the iterations of [[EM]] or [[k-means]], and see the ellipses move to the groups. Add an " +
    "outlier, use more clusters than groups, change the [[temperature]], or start with uniform [[logit|logits]], " +
    "and watch the [[activation|activations]].",
  mount: (root, app) => new ClustersPanel(root, app),
};

class ClustersPanel {
  #state;
  #limits;
  #plane;
  #options;
  /** @type {Point[]} */
  #points = [];
  /** Counts additions and removals: a response for another set of points is not shown. */
  #generation = 0;
  /** Counts loaded presets: a preset that arrives after another choice is not shown. */
  #loads = 0;
  /** @type {Api.ClusterResponse | null} */
  #response = null;
  /** [iterations, points, clusters] */
  #responsibilities = new Uint8Array();
  #readout = new ClusterReadout();
  #stepper = new Stepper(() => this.#showIteration());
  #count = el("span", { class: "muted small" });
  #preset = el(
    "select",
    { "aria-label": "Points to begin with", onchange: () => this.#loadPreset(this.#preset.value) },
    options({ "": "Your own points", ...PRESETS }),
  );

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#state = app.state;
    this.#limits = app.info.limits.clusters;
    this.#options = new ClusterOptions(app, () => this.#cluster());
    this.#plane = new Plane(this.#limits, {
      onAdd: (point) => this.#add(point),
      onMove: (n, point) => this.#edit(this.#points.map((old, m) => (m === n ? point : old))),
      onRemove: (n) => this.#editSet(this.#points.filter((_, m) => m !== n)),
    });
    root.append(this.#layout());
    this.#restore();
  }

  unmount() {
    this.#stepper.stop();
  }

  /** @param {string[]} changedKeys */
  onAddress(changedKeys) {
    if (changedKeys.some((key) => key.startsWith("clusters."))) this.#restore();
  }

  #layout() {
    const clear = el("button", { type: "button", onclick: () => this.#editSet([]) }, "Clear");
    const choices = [
      el("label", { class: "choice" }, "Points", this.#preset),
      clear,
      el("span", { class: "grow" }),
      this.#count,
    ];
    return el(
      "div",
      { class: "cards stage-cards" },
      el(
        "div",
        { class: "card" },
        el("div", { class: "row choices" }, choices),
        this.#plane.root,
        this.#stepper.node,
        el("p", { class: "muted small keys" }, KEYS_HINT),
        this.#readout.plots,
      ),
      el(
        "div",
        { class: "card" },
        this.#options.root,
        el("h2", {}, "Activation of each cluster"),
        this.#readout.meters,
        this.#readout.mass,
      ),
    );
  }

  /** @param {unknown} [iteration] */
  #cluster(iteration) {
    const count = this.#points.length;
    this.#count.textContent = count === 1 ? "1 point" : `${count} points`;
    if (count) return this.#request(this.#generation, iteration);
    this.#response = null;
    this.#show();
    return undefined;
  }

  #request = latest(async (/** @type {number} */ generation, /** @type {unknown} */ iteration) => {
    if (!this.#points.length) return;
    const response = await post("clusters/cluster", { ...this.#options.values, points: this.#points });
    // A response is shown also if points have moved since the request, so that ellipses follow a drag.
    if (generation !== this.#generation) return;
    this.#response = response;
    this.#responsibilities = decodeBytes(response.responsibilities);
    if (iteration === "begin") this.#stepper.begin(response.iterations.length);
    else this.#stepper.setCount(response.iterations.length, iteration);
    this.#show();
  });

  /**
   * @param {string} name
   * @param {{ iteration?: unknown, setClusters?: boolean }} [view]
   */
  async #loadPreset(name, { iteration = "begin", setClusters = true } = {}) {
    if (!name) return;
    const load = ++this.#loads;
    const preset = await post("clusters/preset", { name: /** @type {PresetName} */ (name) }).catch(() => null);
    if (!preset || load !== this.#loads) return;
    if (setClusters) this.#options.setClusters(preset.clusters);
    this.#stepper.stop();
    this.#replacePoints(preset.points, iteration);
    this.#preset.value = name;
  }

  /**
   * Show another set of points.
   *
   * @param {Point[]} points
   * @param {unknown} [iteration]
   */
  #replacePoints(points, iteration) {
    this.#generation += 1;
    this.#updatePoints(points, iteration);
  }

  /**
   * @param {Point[]} points
   * @param {unknown} [iteration]
   */
  #updatePoints(points, iteration) {
    if (iteration === undefined) this.#stepper.finish();
    const text = packPoints(points, this.#limits);
    // As precise as the address, so that a link shows the same numbers.
    this.#points = unpackPoints(text, this.#limits) ?? points;
    this.#state.set("clusters.points", text);
    this.#showPoints();
    this.#cluster(iteration);
  }

  /** @param {Point[]} points */
  #edit(points) {
    this.#preset.value = "";
    this.#updatePoints(points);
  }

  /** @param {Point[]} points */
  #editSet(points) {
    this.#preset.value = "";
    this.#replacePoints(points);
  }

  /** @param {Point} point */
  #add(point) {
    if (this.#points.every(([x, y]) => Math.hypot(x - point[0], y - point[1]) > FAR)) completeTask("outlier");
    if (this.#points.length < this.#limits.max_points) this.#editSet([...this.#points, point]);
    else showStatus(`At most ${this.#limits.max_points} points.`);
  }

  #showIteration() {
    this.#state.set("clusters.iteration", this.#stepper.isAtEnd ? null : this.#stepper.at);
    this.#show();
  }

  #showPoints() {
    this.#plane.showPoints(this.#points, this.#currentResponsibilities());
  }

  /** Responsibilities [points, clusters] of the iteration that is shown; null if they belong to other points. */
  #currentResponsibilities() {
    if (!this.#response) return null;
    const { iterations } = this.#response;
    const size = this.#points.length * iterations[0].means.length;
    if (this.#responsibilities.length !== iterations.length * size) return null;
    return this.#responsibilities.subarray(this.#stepper.at * size, (this.#stepper.at + 1) * size);
  }

  #show() {
    const { at } = this.#stepper;
    this.#showPoints();
    this.#stepper.node.hidden = !this.#response;
    this.#plane.showClusters(this.#response?.iterations[at]);
    this.#readout.show(this.#response, at, { hasTemperature: this.#options.values.routing === "em" });
  }

  /** Show what the address names. */
  #restore() {
    this.#options.restore();
    this.#stepper.stop();
    this.#loads += 1;
    const points = unpackPoints(this.#state.get("clusters.points"), this.#limits);
    const iteration = this.#state.get("clusters.iteration", "begin");
    if (!points) {
      this.#loadPreset(FIRST_PRESET, { iteration, setClusters: false });
      return;
    }
    this.#preset.value = "";
    this.#replacePoints(points, iteration);
  }
}
