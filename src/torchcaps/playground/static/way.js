// One routing of the votes: a map of coupling for each class, the votes in a plane, and two small curves.

const TALL = 0.62; // height of the plane for its width
const MORE = [0, 114, 178];
const LESS = [230, 159, 0];
const EVEN = [150, 156, 163];
// Over a place the types even out, so that less is more there.
const PLACE = 1.35;

// The colour of a share as a multiple of the even one: grey is even, blue is `most` times as much or more, orange that
// much less.
export function shade(times, most = 2) {
  const strength = Math.max(-1, Math.min(1, Math.log(Math.max(times, 1e-6)) / Math.log(most)));
  const end = strength > 0 ? MORE : LESS;
  return `rgb(${EVEN.map((value, c) => Math.round(value + (end[c] - value) * Math.abs(strength))).join(" ")})`;
}

export class Way {
  constructor(app, side, choose) {
    const { el } = app;
    this.app = app;
    this.choose = choose;
    this.says = el("span", { class: "small muted", id: `says-${side}` });
    this.trained = el("p", { class: "small muted trained" });
    this.maps = el("div", { class: "maps", role: "group", "aria-label": "classes" });
    this.plane = el("svg", { class: "plane", viewBox: `-1.1 ${-1.12 * TALL} 2.2 ${2.24 * TALL}`, role: "img" });
    this.note = el("p", { class: "small muted caption" });
    this.entropy = el("div", {});
    this.change = el("div", {});
    this.root = el("div", {}, this.trained, this.maps, this.plane, this.note, el("div", { class: "curves" }, this.entropy, this.change));
  }

  fill(data, way, { trained }) {
    this.way = way;
    this.data = data;
    this.root.hidden = !way;
    this.says.textContent = "";
    if (!way) return;
    this.trained.textContent = trained ? "Trained with this network." : "Not trained with this network: its answer says little.";
    this.#fillMaps();
    this.#fillPlane();
  }

  #fillMaps() {
    const { el, info } = this.app;
    const { rows, columns, parent } = this.data;
    this.cells = info.classes.map((name, label) => {
      const cells = Array.from({ length: rows * columns }, (_, n) => el("rect", {
        x: n % columns, y: Math.floor(n / columns), width: 1, height: 1,
      }));
      const length = el("span", { class: "bar" });
      const number = el("small", {});
      const button = el("button", {
        type: "button", class: "map", "aria-pressed": String(label === parent), title: `votes for ${name}`, "data-label": label,
        onclick: () => this.choose(label),
      }, el("b", {}, name), el("svg", { viewBox: `0 0 ${columns} ${rows}`, "aria-hidden": "true" }, cells), el("span", { class: "track" }, length), number);
      return { button, cells, length, number };
    });
    this.maps.replaceChildren(...this.cells.map(({ button }) => button));
  }

  #fillPlane() {
    const { el, info } = this.app;
    const { votes, parent, kept } = this.data;
    const size = Math.max(...votes.map(([x, y]) => Math.max(Math.abs(x), Math.abs(y) / TALL)), 1e-6);
    const longest = Math.max(...this.way.path.map(([x, y]) => Math.hypot(x, y)), 1e-6);
    // Some routers give poses of another length than the votes have; they are drawn as far out as the page allows.
    const shrink = Math.min(1, (1.05 * size) / longest);
    this.scale = 1 / size;
    this.points = votes.map(([x, y]) => el("circle", { cx: x * this.scale, cy: -y * this.scale }));
    this.path = this.way.path.map(([x, y]) => [x * shrink * this.scale, -y * shrink * this.scale]);
    this.line = el("polyline", { class: "path" });
    this.head = el("circle", { class: "parent", r: 0.045 });
    this.plane.replaceChildren(
      el("line", { class: "axis", x1: -1.1, x2: 1.1, y1: 0, y2: 0 }), el("line", { class: "axis", x1: 0, x2: 0, y1: -1, y2: 1 }),
      el("g", {}, this.points), this.line, this.head);
    this.plane.setAttribute("aria-label", `Votes for ${info.classes[parent]} in a plane, and the pose of that class`);
    this.note.textContent = `votes for ${info.classes[parent]} in the plane of their two main directions ` +
      `(${Math.round(100 * kept)} % of them lies in it)${shrink < 1 ? `; the pose is drawn at 1/${(1 / shrink).toFixed(1)} of its length` : ""}`;
  }

  go(iteration) {
    const { linePlot, info } = this.app;
    const at = Math.min(iteration, this.way.path.length - 1);
    const classes = info.classes.length;
    const lengths = this.way.activations[at];
    const best = lengths.indexOf(Math.max(...lengths));
    this.says.replaceChildren(`${info.classes[best]} at ${lengths[best].toFixed(2)}`);
    this.cells.forEach(({ cells, length, number, button }, label) => {
      cells.forEach((cell, n) => cell.setAttribute("fill", shade(this.way.shares[at][label][n] * classes, PLACE)));
      length.style.width = `${(100 * lengths[label]).toFixed(1)}%`;
      number.textContent = lengths[label].toFixed(2);
      button.classList.toggle("best", label === best);
    });
    this.way.coupling[at].forEach((share, n) => {
      const times = share * classes;
      this.points[n].setAttribute("fill", shade(times));
      this.points[n].setAttribute("r", (0.012 + 0.014 * Math.sqrt(Math.min(times, 6))).toFixed(4));
    });
    this.line.setAttribute("points", [[0, 0], ...this.path.slice(0, at + 1)].map((point) => point.join(",")).join(" "));
    this.head.setAttribute("cx", this.path[at][0]);
    this.head.setAttribute("cy", this.path[at][1]);
    const x = this.way.path.map((_, n) => n + 1);
    const mark = at + 1;
    // Coupling is never far from even, so that from 0 to 1 its entropy would be a flat line.
    linePlot(this.entropy, { series: [{ values: this.way.entropy, color: "var(--c0)" }], x, mark, height: 100, fit: 0.01, labels: { y: `entropy ${this.way.entropy[at].toFixed(3)}` }, title: "Entropy of the coupling" });
    linePlot(this.change, { series: [{ values: this.way.change, color: "var(--c2)" }], x, mark, height: 100,
      labels: { y: `logits moved ${this.way.change[at].toFixed(3)}` }, title: "Change of the logits" });
  }
}
