import { MOST, axes, inside, pack, unpack } from "../points.js";
import { blend, inkOn } from "../shapes.js";
import { stepper } from "../steps.js";

const PRESETS = { "two blobs": "Two blobs", "three blobs and outliers": "Three blobs and outliers", ring: "A ring", stretched: "Stretched" };
const isEm = ({ routing }) => routing === "em";

// Every choice: its words, its values, what it starts from, and when it means something.
const CHOICES = {
  routing: { text: "Routing", options: { em: "EM", kmeans: "k-means" }, first: "em" },
  clusters: { text: "Clusters", range: [1, 8, 1], first: 3 },
  iters: { text: "Iterations", range: [1, 40, 1], first: 20 },
  start: { text: "Start", options: { spread: "near spread-out points", noise: "at random", equal: "all alike" }, first: "spread" },
  seed: { text: "Seed", range: [0, 30, 1], first: 0, when: ({ start }) => start !== "equal" },
  covariance: { text: "Covariance", options: { diagonal: "diagonal", full: "full" }, first: "diagonal", when: isEm },
  schedule: { text: "Temperature", options: { paper: "1 − 0.95ⁿ", linear: "linear", constant: "constant", released: "released code" }, first: "paper", when: isEm },
  gain: { text: "Gain", range: [1, 100, 1], first: 20, when: (all) => !isEm(all) },
};

function mount(root, app) {
  const { el, state } = app;
  let points = [];
  // Raised where points are put, taken or loaded, not where they move: an answer about others is none.
  let era = 0;
  let loads = 0;
  let answer = null;
  let shares = null;
  let held = null;
  let dragged = false;
  let reach = 0.035;
  let cross = [0, 0];
  const option = ([value, text]) => el("option", { value }, text);

  const preset = el("select", { "aria-label": "Points to begin with", onchange: () => load(preset.value) }, option(["", "Your own points"]), Object.entries(PRESETS).map(option));
  const clear = el("button", { type: "button", onclick: () => { preset.value = ""; replace([]); } }, "Clear");
  const inputs = {};
  const rows = Object.entries(CHOICES).map(([name, choice]) => {
    const output = el("output", { class: "small number" });
    const input = choice.range
      ? el("input", { type: "range", min: choice.range[0], max: choice.range[1], step: choice.range[2], "aria-label": choice.text, oninput: () => change(name) })
      : el("select", { "aria-label": choice.text, onchange: () => change(name) }, Object.entries(choice.options).map(option));
    const row = el("label", { class: "slide", "data-choice": name }, choice.text, input, choice.range ? output : null);
    inputs[name] = { input, output, row, choice };
    return row;
  });
  const steps = stepper((at) => { state.set("clusters.at", at); draw(); });
  const layer = { blobs: el("g"), dots: el("g"), centres: el("g"), cross: el("path", { class: "cross" }) };
  const plane = el("svg", {
    viewBox: "-1.5 -1 3 2", class: "stage field", tabindex: 0, role: "application",
    "aria-label": "The plane: click to put a point. Keys: arrows move the cross, Enter puts a point, Delete takes the nearest away",
  }, el("path", { class: "ground", d: "M-1.5 0H1.5M0 -1V1" }), layer.blobs, layer.dots, layer.centres, layer.cross);
  const count = el("span", { class: "muted small" });
  const bars = el("div", { class: "wholes" });
  const plots = { activations: el("div"), mass: el("div"), temperature: el("div") };

  root.append(el("div", { class: "cards stage-cards" },
    el("div", { class: "card" }, el("div", { class: "row choices" }, preset, clear, el("span", { class: "grow" }), count), plane, steps.node,
      el("p", { class: "muted small keys" }, "Click to put a point, drag to move one, double-click to take one away. With keys: arrows move the cross, Enter puts a point, Delete takes the nearest away."),
      el("div", { class: "plot-pair" }, plots.activations, plots.temperature)),
    el("div", { class: "card" }, el("div", { class: "options" }, rows), el("h2", {}, "Activation of each cluster"), bars, plots.mass),
  ));

  const settings = () => Object.fromEntries(Object.entries(inputs).map(([name, { input, choice }]) => [name, choice.range ? Number(input.value) : input.value]));
  const ask = app.latest((body) => app.api("clusters/cluster", body));

  async function cluster(at) {
    count.textContent = points.length === 1 ? "1 point" : `${points.length} points`;
    if (!points.length) {
      answer = null;
      return draw();
    }
    const asked = era;
    // Answers come one at a time, in the order of the questions: each is shown, though points have moved on meanwhile.
    const given = await ask({ ...settings(), points });
    if (!given || asked !== era) return;
    answer = given;
    shares = Uint8Array.from(atob(given.responsibilities), (letter) => letter.charCodeAt(0));
    steps.set(answer.iterations.length, at);
    draw();
  }

  async function load(name, wanted, advised = true) {
    if (!name) return;
    const mine = ++loads;
    const found = await app.api("clusters/preset", { name }).catch(() => null);
    if (!found || mine !== loads) return;
    preset.value = name;
    if (advised) {
      inputs.clusters.input.value = found.clusters;
      change("clusters", false);
    }
    steps.stop();
    await replace(found.points, wanted);
  }

  function replace(next, at) {
    era += 1;
    return keep(next, at);
  }

  function keep(next, at) {
    // As exact as the address is, so that a link shows the very same numbers.
    points = unpack(pack(next));
    state.set("clusters.points", pack(points));
    drawDots();
    return cluster(at);
  }

  function label() {
    const all = settings();
    for (const { input, output, row, choice } of Object.values(inputs)) {
      output.textContent = input.value;
      row.hidden = Boolean(choice.when && !choice.when(all));
    }
  }

  function change(name, now = true) {
    const { input, choice } = inputs[name];
    const value = choice.range ? Number(input.value) : input.value;
    state.set(`clusters.${name}`, value === choice.first ? null : value);
    label();
    if (now) cluster();
  }

  function put(point) {
    if (points.length >= MOST) return app.say(`At most ${MOST} points.`);
    preset.value = "";
    return replace([...points, inside(point)]);
  }

  function take(n) {
    if (n < 0) return;
    preset.value = "";
    replace(points.filter((_, m) => m !== n));
  }

  // The number of the point that is nearest to a place and not further away than that, or -1.
  function near([x, y], apart = Infinity) {
    let best = -1;
    points.forEach(([px, py], n) => {
      const distance = Math.hypot(px - x, py - y);
      if (distance < apart) [best, apart] = [n, distance];
    });
    return best;
  }

  function at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plane.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  plane.addEventListener("pointerdown", (event) => {
    dragged = false;
    // A finger is less exact than a pointer, and has no other way to take a point away than to hit it.
    reach = event.pointerType === "touch" ? 0.1 : 0.035;
    const n = near(at(event), reach);
    if (event.button || n < 0) return;
    event.preventDefault();
    held = { n, pointer: event.pointerId };
    plane.setPointerCapture(event.pointerId);
    plane.classList.add("held");
  });
  plane.addEventListener("pointermove", (event) => {
    if (!held || held.pointer !== event.pointerId) return;
    dragged = true;
    preset.value = "";
    keep(points.map((point, n) => (n === held.n ? inside(at(event)) : point)));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    plane.addEventListener(end, () => { held = null; plane.classList.remove("held"); });
  }
  plane.addEventListener("click", (event) => {
    // The end of a drag is a click too, wherever it ends; one on a point is the first half of a double click.
    if (!dragged && near(at(event), reach) < 0) put(at(event));
  });
  plane.addEventListener("dblclick", (event) => {
    take(near(at(event), reach));
  });
  plane.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const far = event.shiftKey ? 0.2 : 0.05;
    const move = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far] }[event.key];
    if (move) {
      cross = inside([cross[0] + move[0], cross[1] + move[1]]);
      drawCross();
    } else if (event.key === "Enter" || event.key === " ") put(cross);
    else if (event.key === "Delete" || event.key === "Backspace") take(near(cross));
    else return;
    event.preventDefault();
  });

  function drawCross() {
    const [x, y] = cross;
    layer.cross.setAttribute("d", `M${x - 0.06} ${y}h0.12M${x} ${y - 0.06}v0.12`);
  }

  function drawDots() {
    while (layer.dots.children.length > points.length) layer.dots.lastChild.remove();
    while (layer.dots.children.length < points.length) layer.dots.append(el("circle", { class: "dot", r: 0.024 }));
    const clusters = answer ? answer.iterations[0].means.length : 0;
    const known = answer && shares.length === answer.iterations.length * points.length * clusters;
    const from = Math.min(steps.at, (answer?.iterations.length ?? 1) - 1) * points.length * clusters;
    points.forEach(([x, y], n) => {
      const dot = layer.dots.children[n];
      dot.setAttribute("cx", x.toFixed(4));
      dot.setAttribute("cy", y.toFixed(4));
      if (known) {
        const share = [...shares.subarray(from + n * clusters, from + (n + 1) * clusters)];
        const total = share.reduce((sum, value) => sum + value, 0) || 1;
        dot.setAttribute("fill", blend(app.palette, share.map((value) => value / total)));
      }
    });
  }

  function draw() {
    drawDots();
    const step = answer?.iterations[Math.min(steps.at, answer.iterations.length - 1)];
    const means = step?.means ?? [];
    layer.blobs.replaceChildren(...means.flatMap(([x, y], j) => {
      const { long, short, angle } = axes(step.covariances[j]);
      const turn = `translate(${x} ${y}) rotate(${angle})`;
      const strength = 0.25 + 0.75 * step.activations[j];
      return [
        el("ellipse", { class: "blob", rx: long, ry: short, transform: turn, fill: app.palette[j], "fill-opacity": (0.14 * strength).toFixed(3), stroke: app.palette[j], "stroke-opacity": strength.toFixed(3) }),
        el("ellipse", { class: "blob outer", rx: 2 * long, ry: 2 * short, transform: turn, stroke: app.palette[j], "stroke-opacity": (0.6 * strength).toFixed(3), "stroke-dasharray": "4 3" }),
      ];
    }));
    layer.centres.replaceChildren(...means.map(([x, y], j) => el("g", {},
      el("circle", { class: "disc", cx: x, cy: y, r: 0.055, fill: app.palette[j] }), el("text", { class: "centre", x, y: y + 0.03, fill: inkOn(app.palette[j]) }, String(j + 1)))));
    numbers(step);
  }

  function numbers(step) {
    for (const part of [...Object.values(plots), steps.node]) part.hidden = !step;
    bars.replaceChildren(...(step?.activations ?? []).map((activation, j) => el("div", { class: "meter" },
      el("span", {}, el("svg", { viewBox: "0 0 12 12", class: "swatch", "aria-hidden": "true" }, el("circle", { cx: 6, cy: 6, r: 6, fill: app.palette[j] })), `${j + 1}: ${step.mass[j].toFixed(1)} points`),
      el("div", { class: "gauge" }, el("div", { class: "level eased", style: { width: `${100 * activation}%`, background: app.palette[j] } })),
      el("b", { class: "number" }, activation.toFixed(2)))));
    if (!step) {
      bars.append(el("p", { class: "muted small caption" }, "No points yet: click into the plane, or choose some above it."));
      return;
    }
    const lines = (name) => step.means.map((_, j) => ({ values: answer.iterations.map((one) => one[name][j]), color: app.palette[j], label: `cluster ${j + 1}`, legend: false }));
    const common = { x: answer.iterations.map((_, n) => n + 1), mark: steps.at + 1 };
    app.linePlot(plots.activations, { ...common, series: lines("activations"), yRange: [0, 1], labels: { x: "iteration", y: "activation" }, title: "Activation of each cluster over the iterations" });
    app.linePlot(plots.mass, { ...common, series: lines("mass"), labels: { x: "iteration", y: "points that a cluster has" }, title: "Points of each cluster over the iterations" });
    plots.temperature.hidden = inputs.routing.input.value !== "em";
    app.linePlot(plots.temperature, { ...common, series: [{ values: answer.iterations.map((one) => one.inverse_temp), color: "var(--muted)" }], labels: { x: "iteration", y: "inverse temperature" }, title: "Inverse temperature over the iterations" });
  }

  async function restore() {
    for (const [name, { input, choice }] of Object.entries(inputs)) {
      const value = state.get(`clusters.${name}`, choice.first);
      const known = choice.range ? Number.isFinite(value) : Object.hasOwn(choice.options, value);
      input.value = known ? value : choice.first;
    }
    label();
    steps.stop();
    loads += 1;
    const found = unpack(state.get("clusters.points", null));
    const wanted = state.get("clusters.at", Infinity);
    if (!found) return load("three blobs and outliers", wanted, false);
    preset.value = "";
    return replace(found, wanted);
  }

  drawCross();
  restore();
  return {
    unmount() { steps.stop(); },
    onState(changes) {
      if (changes.some((key) => key.startsWith("clusters."))) restore();
    },
  };
}

export const panel = {
  id: "clusters", title: "Clusters",
  hint: "Every point is a child that votes for its own place, every cluster a parent: step through the iterations and see the ellipses find the groups while points take their colours. "
    + "Put an outlier, ask for more clusters than there are groups, or start with all alike, and look at what becomes of the activations.",
  mount,
};
