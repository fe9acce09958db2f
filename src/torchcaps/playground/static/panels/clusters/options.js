// @ts-check
/** The options of a clustering. */
import { el, options } from "../../lib/dom.js";

/** @typedef {Omit<Required<Api.ClusterRequest>, "points">} Options */
/** @typedef {keyof Options} Name */

/**
 * @typedef {object} OptionSpec
 * @property {string} text
 * @property {string | number} default
 * @property {Record<string, string>} [choices] Texts of the values of a select.
 * @property {import("../../lib/numbers.js").Range} [range] Range of a slider.
 * @property {(options: Options) => boolean} [isUsed] Whether the option has an effect beside the others.
 */

/** @type {(options: Options) => boolean} */
const isEm = ({ routing }) => routing === "em";

/**
 * @param {Api.ClusterLimits} limits
 * @returns {Record<Name, OptionSpec>}
 */
function makeSpecs(limits) {
  const schedules = { paper: "1 − 0.95ⁿ", linear: "linear", constant: "constant", released: "released code" };
  const starts = { "k-means++": "k-means++", random: "random", uniform: "uniform" };
  return {
    routing: { text: "Routing", choices: { em: "EM", kmeans: "k-means" }, default: "em" },
    clusters: { text: "Clusters", range: [1, limits.max_clusters], default: 3 },
    iters: { text: "Iterations", range: [1, limits.max_iters], default: 20 },
    start: { text: "Start", choices: starts, default: "k-means++" },
    seed: { text: "Seed", range: [0, 30], default: 0, isUsed: ({ start }) => start !== "uniform" },
    covariance: {
      text: "Covariance",
      choices: { diagonal: "diagonal", full: "full" },
      default: "diagonal",
      isUsed: isEm,
    },
    schedule: { text: "Temperature", choices: schedules, default: "paper", isUsed: isEm },
    gain: { text: "Gain", range: [1, 100], default: 20, isUsed: (values) => !isEm(values) },
  };
}

export class ClusterOptions {
  #state;
  #onChange;
  #rows;

  /**
   * @param {import("../../app.js").App} app
   * @param {() => void} onChange
   */
  constructor({ state, info }, onChange) {
    this.#state = state;
    this.#onChange = onChange;
    const specs = Object.entries(makeSpecs(info.limits.clusters));
    this.#rows = specs.map(([name, spec]) => this.#makeRow(/** @type {Name} */ (name), spec));
    this.root = el(
      "div",
      { class: "options" },
      this.#rows.map(({ row }) => row),
    );
  }

  /** The values of all options. */
  get values() {
    const entries = this.#rows.map(({ name, spec, input }) => [name, spec.range ? Number(input.value) : input.value]);
    return /** @type {Options} */ (Object.fromEntries(entries));
  }

  /** Read the options from the address. */
  restore() {
    for (const { name, spec, input } of this.#rows) {
      const value = this.#state.get(`clusters.${name}`, spec.default);
      const isValid = spec.choices ? Object.hasOwn(spec.choices, value) : Number.isFinite(value);
      input.value = String(isValid ? value : spec.default);
    }
    this.#update();
  }

  /**
   * Set the number of clusters.
   *
   * @param {number} clusters
   */
  setClusters(clusters) {
    for (const row of this.#rows) {
      if (row.name !== "clusters") continue;
      row.input.value = String(clusters);
      this.#store(row);
    }
  }

  /**
   * @param {Name} name
   * @param {OptionSpec} spec
   */
  #makeRow(name, spec) {
    const { text, range, choices = {} } = spec;
    const change = () => {
      this.#store(row);
      this.#onChange();
    };
    const input = range
      ? el("input", { type: "range", min: range[0], max: range[1], step: 1, "aria-label": text, oninput: change })
      : el("select", { "aria-label": text, onchange: change }, options(choices));
    const output = el("output", { class: "small number" });
    const label = el("label", { class: "slider-row", "data-choice": name }, text, input, range && output);
    const row = { name, spec, input, output, row: label };
    return row;
  }

  /** @param {{ name: Name, spec: OptionSpec, input: HTMLInputElement | HTMLSelectElement }} row */
  #store({ name, spec, input }) {
    const value = spec.range ? Number(input.value) : input.value;
    this.#state.set(`clusters.${name}`, value === spec.default ? null : value);
    this.#update();
  }

  #update() {
    const { values } = this;
    for (const { spec, input, output, row } of this.#rows) {
      output.textContent = input.value;
      row.hidden = Boolean(spec.isUsed && !spec.isUsed(values));
    }
  }
}
