// The numbers of the toy beside its scene: activations, the table of coupling, and the poses of the wholes.
import { two } from "./parts.js";

// Each whole has a stroke of its own beside its colour.
export const DASHES = [undefined, "7 4", "2 4"];

const short = (name) => name.replace(" house", "");
const brief = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/^-0\.0$/, "0.0"));
export const nameOf = (parts, n) => `${parts[n].kind} ${n + 1}`;

export class Numbers {
  constructor(app, choose) {
    const { el } = app;
    this.app = app;
    this.choose = choose;
    this.meters = el("div", { class: "wholes" });
    this.activations = el("div");
    this.table = el("div", { class: "scroll" });
    this.coupling = el("div");
    this.poses = el("div", { class: "scroll" });
    this.root = el("div", { class: "card" },
      el("h2", {}, "Which wholes are there"), this.meters, this.activations,
      el("h2", { class: "later" }, "Coupling of each part, with its agreement and logit"), this.table, this.coupling,
      el("h2", { class: "later" }, "Pose of each whole"), this.poses);
  }

  show(answer, at, parts, chosen) {
    const step = answer.iterations[at];
    this.#showActivations(answer.wholes, step);
    this.#showCoupling(answer.wholes, step, parts, chosen);
    this.#showPoses(answer.wholes, step);
    this.#plot(this.activations, answer, at, (one) => one.activations, "activation");
    this.#plot(this.coupling, answer, at, (one) => one.coupling[chosen], `coupling of ${nameOf(parts, chosen)}`);
  }

  #gauge(value, j, thin = "") {
    const { el, palette } = this.app;
    return el("div", { class: `gauge ${thin}` }, el("div", { class: "level eased", style: { width: `${100 * value}%`, background: palette[j] } }));
  }

  #showActivations(wholes, step) {
    const { el, palette } = this.app;
    const swatch = (j) => el("svg", { viewBox: "0 0 22 8", class: "swatch", "aria-hidden": "true" },
      el("line", { x1: 1, x2: 21, y1: 4, y2: 4, stroke: palette[j], "stroke-width": 3, "stroke-dasharray": DASHES[j] }));
    this.meters.replaceChildren(...wholes.map(({ name }, j) => el("div", { class: "meter", "data-whole": name },
      el("span", {}, swatch(j), name), this.#gauge(step.activations[j], j), el("b", { class: "number" }, two(step.activations[j])))));
  }

  #showCoupling(wholes, step, parts, chosen) {
    const { el } = this.app;
    const meaning = "agreement: vote times pose; logit: what the softmax over wholes was taken of";
    const cell = (i, j) => el("td", {}, this.#gauge(step.coupling[i][j], j, "thin"), el("b", { class: "coupling" }, two(step.coupling[i][j])),
      el("small", { title: meaning }, `${two(step.agreement[i][j])} · ${brief(step.logits[i][j])}`));
    const row = (part, i) => el("tr", { class: i === chosen ? "is-chosen" : "", onclick: () => this.choose(i) },
      el("th", { scope: "row", "aria-label": nameOf(parts, i), title: nameOf(parts, i) }, `${part.kind === "triangle" ? "△" : "▭"} ${i + 1}`),
      wholes.map((_, j) => cell(i, j)));
    const head = ["part", ...wholes.map(({ name }) => short(name))].map((word) => el("th", { scope: "col" }, word));
    this.table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, parts.map(row))));
  }

  #showPoses(wholes, step) {
    const { el } = this.app;
    const row = ({ name }, j) => {
      const { x, y, angle, size } = step.poses[j];
      return el("tr", {}, el("th", { scope: "row" }, short(name)), [two(x), two(y), `${Math.round(angle)}°`, two(size)].map((text) => el("td", {}, text)));
    };
    const head = ["whole", "x", "y", "turn", "size"].map((word) => el("th", { scope: "col" }, word));
    this.poses.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, wholes.map(row))));
  }

  #plot(root, { wholes, iterations }, at, values, what) {
    this.app.linePlot(root, {
      series: wholes.map(({ name }, j) => ({
        values: iterations.map((one) => values(one)[j]), color: this.app.palette[j], dash: DASHES[j], label: name, legend: false,
      })),
      x: iterations.map((_, n) => n + 1), yRange: [0, 1], mark: at + 1, labels: { x: "iteration", y: what },
      title: `${what} over the iterations`,
    });
  }
}
