// @ts-check
/** One router: a coupling map for each class, the votes in a plane, and two curves. */
import { ratioColor } from "../../lib/colors.js";
import { el, setAttributes, svg } from "../../lib/dom.js";
import { term } from "../../lib/glossary.js";
import { argmax, fixed, indices } from "../../lib/numbers.js";
import { linePlot } from "../../lib/plot.js";

/** Height of the plane divided by its width. */
const ASPECT = 0.45;

/** @typedef {{ button: HTMLButtonElement, cells: SVGRectElement[], bar: HTMLElement, number: HTMLElement }} ClassMap */

export class RouterCard {
  #classes;
  #onClass;
  /** @type {Api.RouterTrace | undefined} */
  #trace;
  /** @type {ClassMap[]} */
  #classMaps = [];
  /** @type {SVGCircleElement[]} */
  #points = [];
  /** @type {number[][]} Pose of the class by iteration, in the plane. */
  #path = [];
  #pathLine = svg("polyline", { class: "path" });
  #pathEnd = svg("circle", { class: "parent", r: 0.045 });
  #prediction = el("span", { class: "small muted prediction" });
  #training = el("p", { class: "small muted training" });
  #maps = el("div", { class: "maps", role: "group", "aria-label": "classes" });
  #plane = svg("svg", { class: "plane", role: "img", viewBox: `-1.1 ${-1.12 * ASPECT} 2.2 ${2.24 * ASPECT}` });
  #caption = el("p", { class: "small muted caption" });
  #entropy = el("div");
  #change = el("div");

  /**
   * @param {string} side "a" or "b".
   * @param {string[]} classes
   * @param {{ onRouter: (name: string) => void, onClass: (label: number) => void }} listeners
   */
  constructor(side, classes, { onRouter, onClass }) {
    this.#classes = classes;
    this.#onClass = onClass;
    this.select = el("select", {
      id: `router-${side}`,
      "aria-label": side === "a" ? "router" : "second router",
      onchange: () => onRouter(this.select.value),
    });
    this.content = el(
      "div",
      { class: "router-content" },
      el("div", {}, this.#training, this.#maps),
      el("div", { class: "votes-plane" }, this.#plane, this.#caption),
      el("div", { class: "curves" }, this.#entropy, this.#change),
    );
    this.root = el(
      "div",
      { class: "card router-card", id: `card-${side}` },
      el("div", { class: "row between top" }, this.select, this.#prediction),
      this.content,
    );
  }

  /**
   * @param {Api.TraceResponse} response
   * @param {Api.RouterTrace | undefined} trace Undefined without a second router.
   * @param {string} training What the router has to do with the network.
   */
  show(response, trace, training) {
    this.#trace = trace;
    this.root.classList.toggle("empty", !trace);
    this.content.hidden = !trace;
    this.#prediction.textContent = trace ? "" : "Another router on the same votes";
    if (!trace) return;
    this.#training.textContent = training;
    this.#showMaps(response);
    this.#showPlane(response, trace);
  }

  /** @param {number} iteration */
  showIteration(iteration) {
    if (!this.#trace) return;
    const at = Math.min(iteration, this.#trace.path.length - 1);
    this.#updateMaps(this.#trace, at);
    this.#updatePlane(this.#trace, at);
    this.#updateCurves(this.#trace, at);
  }

  /** @param {Api.TraceResponse} response */
  #showMaps({ rows, columns, parent }) {
    this.#classMaps = this.#classes.map((name, label) => {
      const cells = indices(rows * columns).map((n) =>
        svg("rect", { x: n % columns, y: Math.floor(n / columns), width: 1, height: 1 }),
      );
      const bar = el("span", { class: "bar" });
      const number = el("small");
      const button = el(
        "button",
        {
          type: "button",
          class: "map",
          title: `Votes for ${name}: coupling by place, and the length of the capsule`,
          "data-label": label,
          "aria-pressed": String(label === parent),
          onclick: () => this.#onClass(label),
        },
        el("b", {}, name),
        svg("svg", { viewBox: `0 0 ${columns} ${rows}`, "aria-hidden": "true" }, cells),
        el("span", { class: "track" }, bar),
        number,
      );
      return { button, cells, bar, number };
    });
    this.#maps.replaceChildren(...this.#classMaps.map(({ button }) => button));
  }

  /**
   * @param {Api.TraceResponse} response
   * @param {Api.RouterTrace} trace
   */
  #showPlane({ votes, parent, explained }, { path }) {
    const size = Math.max(...votes.map(([x, y]) => Math.max(Math.abs(x), Math.abs(y) / ASPECT)), 1e-6);
    const longest = Math.max(...path.map(([x, y]) => Math.hypot(x, y)), 1e-6);
    // Poses of some routers are longer than the votes: they are scaled to the plane.
    const shrink = Math.min(1, (1.05 * size) / longest);
    this.#points = votes.map(([x, y]) => svg("circle", { cx: x / size, cy: -y / size }));
    this.#path = path.map(([x, y]) => [(x * shrink) / size, (-y * shrink) / size]);
    this.#plane.replaceChildren(
      svg("line", { class: "axis", x1: -1.1, x2: 1.1, y1: 0, y2: 0 }),
      svg("line", { class: "axis", x1: 0, x2: 0, y1: -2, y2: 2 }),
      svg("g", {}, this.#points),
      this.#pathLine,
      this.#pathEnd,
    );
    const name = this.#classes[parent];
    const scaled = shrink < 0.95 ? `; the pose is drawn at ${Math.round(100 * shrink)} % of its length` : "";
    this.#plane.setAttribute("aria-label", `Votes for ${name} in a plane, and the pose of that class`);
    this.#caption.textContent =
      `Votes for ${name}, in the plane of their two principal directions (${Math.round(100 * explained)} % of their ` +
      `squared length)${scaled}. Green: the pose of the class, from iteration to iteration.`;
  }

  /**
   * @param {Api.RouterTrace} trace
   * @param {number} at
   */
  #updateMaps({ activations, shares }, at) {
    const lengths = activations[at];
    const best = argmax(lengths);
    this.#prediction.textContent = `predicts ${this.#classes[best]}, length ${fixed(lengths[best])}`;
    this.#classMaps.forEach(({ button, cells, bar, number }, label) => {
      cells.forEach((cell, n) => {
        cell.setAttribute("fill", ratioColor(shares[at][label][n] * this.#classes.length));
      });
      bar.style.width = `${(100 * lengths[label]).toFixed(1)}%`;
      number.textContent = fixed(lengths[label]);
      button.classList.toggle("best", label === best);
    });
  }

  /**
   * @param {Api.RouterTrace} trace
   * @param {number} at
   */
  #updatePlane({ coupling }, at) {
    coupling[at].forEach((share, n) => {
      const ratio = share * this.#classes.length;
      const r = (0.012 + 0.014 * Math.sqrt(Math.min(ratio, 6))).toFixed(4);
      setAttributes(this.#points[n], { fill: ratioColor(ratio), r });
    });
    const corners = [[0, 0], ...this.#path.slice(0, at + 1)];
    this.#pathLine.setAttribute("points", corners.map((point) => point.join(",")).join(" "));
    setAttributes(this.#pathEnd, { cx: this.#path[at][0], cy: this.#path[at][1] });
  }

  /**
   * @param {Api.RouterTrace} trace
   * @param {number} at
   */
  #updateCurves({ entropy, change }, at) {
    this.#change.hidden = entropy.length < 2;
    if (entropy.length < 2) {
      const text = ` of the coupling ${entropy[0].toFixed(3)} (1: uniform), in one iteration`;
      this.#entropy.replaceChildren(el("p", { class: "plot-name" }, term("entropy"), text));
      return;
    }
    const common = { x: indices(entropy.length).map((n) => n + 1), mark: at + 1, height: 84 };
    linePlot(this.#entropy, {
      ...common,
      series: [{ values: entropy, color: "var(--c0)" }],
      yRange: [0, 1],
      labels: { y: el("span", {}, term("entropy"), ` ${entropy[at].toFixed(3)} (1: uniform)`) },
      title: "Entropy of the coupling",
    });
    linePlot(this.#change, {
      ...common,
      series: [{ values: change, color: "var(--c2)" }],
      labels: { y: el("span", {}, term("logit"), ` change ${change[at].toFixed(3)}`) },
      title: "Change of the logits",
    });
  }
}
