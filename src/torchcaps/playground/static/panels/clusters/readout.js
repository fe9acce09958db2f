// @ts-check
/** The numbers of a clustering: activations, masses and temperature. */
import { PALETTE } from "../../lib/colors.js";
import { el, svg } from "../../lib/dom.js";
import { meter } from "../../lib/meter.js";
import { indices } from "../../lib/numbers.js";
import { linePlot } from "../../lib/plot.js";

const EMPTY_TEXT = "No points yet: click into the plane, or choose some points above it.";

export class ClusterReadout {
  meters = el("div", { class: "meters" });
  mass = el("div");
  #activations = el("div");
  #temperature = el("div");
  plots = el("div", { class: "plot-pair" }, this.#activations, this.#temperature);

  /**
   * @param {Api.ClusterResponse | null} response
   * @param {number} at
   * @param {{ hasTemperature: boolean }} options
   */
  show(response, at, { hasTemperature }) {
    for (const plot of [this.#activations, this.#temperature, this.mass]) plot.hidden = !response;
    if (!response) {
      this.meters.replaceChildren(el("p", { class: "muted small caption" }, EMPTY_TEXT));
      return;
    }
    const { activations, mass } = response.iterations[at];
    this.meters.replaceChildren(...activations.map((activation, j) => clusterMeter(activation, mass[j], j)));
    this.#temperature.hidden = !hasTemperature;
    this.#plot(response.iterations, at);
  }

  /**
   * @param {Api.ClusterIteration[]} iterations
   * @param {number} at
   */
  #plot(iterations, at) {
    const common = { x: indices(iterations.length).map((n) => n + 1), mark: at + 1, height: 108 };
    const temperature = { values: iterations.map(({ inverse_temp }) => inverse_temp), color: "var(--muted)" };
    linePlot(this.#activations, {
      ...common,
      series: clusterSeries(iterations, "activations"),
      yRange: [0, 1],
      labels: { x: "iteration", y: "activation" },
      title: "Activation of each cluster by iteration",
    });
    linePlot(this.mass, {
      ...common,
      series: clusterSeries(iterations, "mass"),
      labels: { x: "iteration", y: "points of a cluster" },
      title: "Points of each cluster by iteration",
    });
    linePlot(this.#temperature, {
      ...common,
      series: [temperature],
      labels: { x: "iteration", y: "inverse temperature" },
      title: "Inverse temperature by iteration",
    });
  }
}

/**
 * @param {Api.ClusterIteration[]} iterations
 * @param {"activations" | "mass"} name
 */
function clusterSeries(iterations, name) {
  return iterations[0][name].map((_, j) => ({
    values: iterations.map((iteration) => iteration[name][j]),
    color: PALETTE[j],
    label: `cluster ${j + 1}`,
    legend: false,
  }));
}

/**
 * @param {number} activation
 * @param {number} mass
 * @param {number} j
 */
function clusterMeter(activation, mass, j) {
  const disc = svg("circle", { cx: 6, cy: 6, r: 6, fill: PALETTE[j] });
  const swatch = svg("svg", { viewBox: "0 0 12 12", class: "swatch", "aria-hidden": "true" }, disc);
  return meter([swatch, `${j + 1}: ${mass.toFixed(1)} points`], activation, PALETTE[j]);
}
