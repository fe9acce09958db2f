import { picker, source } from "../input.js";

const REACH = 0.3; // how far a slider moves a dimension either way; the grid goes to 0.25
const MOVES = [
  ["right", "shift right", -7, 7, 1, 0, "px"],
  ["down", "shift down", -7, 7, 1, 0, "px"],
  ["rotate", "rotate", -70, 70, 2, 0, "°"],
  ["scale", "scale", 0.58, 1.42, 0.02, 1, "×"],
  ["shear", "shear", -0.7, 0.7, 0.02, 0, ""],
];

export const panel = {
  id: "pose",
  title: "Pose",
  hint: "Each dimension of the winning capsule is a way in which its digit can look: slide one, or click into the grid that " +
    "tries them all. Then move the picture itself: while the digit is recognised, the length stays and the pose moves along.",
  mount,
};

function mount(root, app) {
  const { el, state, info } = app;
  let found = null;

  const got = el("canvas");
  const drawn = el("canvas");
  const drawnName = el("figcaption", {});
  const sliders = el("div", { class: "dims" });
  const reset = el("button", { type: "button", class: "small", id: "reset-pose", onclick: () => setOffsets(null) }, "as found");
  const grid = el("canvas", { id: "grid", role: "img", "aria-label": "Each dimension, a row, moved by eleven offsets, the columns" });
  const gridBox = el("div", { class: "tile sheet" }, grid);
  const gridRows = el("div", { class: "rows", "aria-hidden": "true" });
  const moved = el("canvas");
  const lengthPlot = el("div", {});
  const posePlot = el("div", {});
  const says = el("p", { class: "says", id: "says" });
  const moves = MOVES.map(([key, name, low, high, step, , unit]) => {
    const value = el("output", { class: "number" });
    const input = el("input", { type: "range", id: `move-${key}`, min: low, max: high, step, "aria-label": name,
      oninput: () => transform({ ...wanted(), [key]: Number(input.value) }, key), onfocus: () => along(key) });
    const show = () => {
      input.value = wanted()[key];
      value.textContent = `${wanted()[key]}${unit && (unit === "°" ? unit : ` ${unit}`)}`;
      row.classList.toggle("chosen", way() === key);
    };
    const row = el("div", { class: "slider" }, el("label", { for: `move-${key}` }, name), input, value);
    return { row, show };
  });
  const still = el("button", { type: "button", class: "small", onclick: () => transform(null, way()) }, "unmoved");
  const choice = picker(app, choose);
  const decoderless = el("p", { class: "muted", hidden: true }, "This network has no decoder, so that its poses cannot be drawn.");

  root.append(el("div", { class: "cards pose" },
    el("div", { class: "card" },
      el("h2", {}, "The picture"),
      el("div", { class: "pictures" },
        el("figure", {}, el("div", { class: "tile" }, got), el("figcaption", {}, "given")),
        el("figure", {}, el("div", { class: "tile", id: "drawn" }, drawn), drawnName))),
    el("div", { class: "card pick" }, el("h2", {}, "or another one"), choice.root),
    el("div", { class: "card" }, el("div", { class: "row spread top" }, el("h2", {}, "The pose that was found"), reset), decoderless, sliders),
    el("div", { class: "card" }, el("h2", {}, "Each dimension from −0.25 to +0.25"), el("div", { class: "numbered" }, gridRows, gridBox))));
  root.append(el("div", { class: "cards pose second" },
    el("div", { class: "card" },
      el("div", { class: "row spread top" }, el("h2", {}, "Move the picture"), still),
      el("div", { class: "moved" }, el("div", { class: "tile" }, moved), says),
      moves.map(({ row }) => row)),
    el("div", { class: "card" }, lengthPlot),
    el("div", { class: "card" }, posePlot)));

  // Only what the sliders could have set, whatever a link says.
  const wanted = () => {
    const kept = state.get("pose.move", null) ?? {};
    return Object.fromEntries(MOVES.map(([key, , low, high, step, neutral]) => {
      const value = Number.isFinite(kept[key]) ? Math.min(high, Math.max(low, kept[key])) : neutral;
      return [key, step === 1 ? Math.round(value) : value];
    }));
  };
  const way = () => {
    const kept = state.get("pose.along", "rotate");
    return MOVES.some(([key]) => key === kept) ? kept : "rotate";
  };
  const offsets = () => {
    const kept = state.get("pose.off", null);
    const size = found?.pose.length ?? 0;
    const known = Array.isArray(kept) && kept.length === size && kept.every(Number.isFinite);
    return known ? kept.map((value) => Math.min(REACH, Math.max(-REACH, value))) : Array(size).fill(0);
  };
  const pose = () => found.pose.map((value, n) => value + offsets()[n]);

  const look = app.latest(async () => {
    found = await app.api("pose/look", { source: source(app) });
    if (!root.isConnected) return;
    app.paint(got, found.image);
    build();
    decode();
    sweep();
    table();
  });
  const decode = app.latest(async () => {
    if (!found || !info.decoder) return;
    const answer = await app.api("pose/decode", { label: found.label, pose: pose() });
    app.paint(drawn, answer.image);
    drawnName.textContent = `drawn from the ${info.classes[found.label]}, length ${answer.length.toFixed(2)}`;
  });
  const table = app.latest(async () => {
    if (!info.decoder) return;
    const answer = await app.api("pose/grid", { label: found.label, pose: pose() });
    app.paint(grid, answer.image);
    grid.dataset.rows = answer.rows;
    gridRows.replaceChildren(...Array.from({ length: answer.rows }, (_, n) => el("span", {}, String(n + 1))));
    grid.dataset.offsets = JSON.stringify(answer.offsets);
  });
  const move = app.latest(async () => {
    const key = way();
    const answer = await app.api("pose/move", { source: source(app), transform: wanted(), along: key });
    if (root.isConnected) plot(key, answer);
  });
  function sweep() {
    for (const { show } of moves) show();
    move();
  }

  function build() {
    sliders.replaceChildren(...found.pose.map((value, n) => {
      const output = el("output", { class: "number" });
      const input = el("input", { type: "range", id: `dim-${n}`, min: -REACH, max: REACH, step: 0.01, value: offsets()[n],
        "aria-label": `dimension ${n + 1}`,
        oninput: () => { change(n, Number(input.value)); output.textContent = pose()[n].toFixed(2); },
        onchange: () => table() });
      output.textContent = (value + offsets()[n]).toFixed(2);
      return el("div", { class: "slider dim" }, el("label", { for: `dim-${n}` }, String(n + 1)), input, output);
    }));
  }
  function change(n, offset) {
    const all = offsets().slice();
    all[n] = Number(offset.toFixed(2));
    state.set("pose.off", all.some(Boolean) ? all : null);
    reset.disabled = !all.some(Boolean);
    decode();
  }
  function setOffsets(all) {
    state.set("pose.off", all);
    reset.disabled = !all;
    build();
    decode();
    table();
  }
  function transform(values, key) {
    state.set("pose.move", values);
    state.set("pose.along", key);
    sweep();
  }
  function along(key) {
    if (way() === key) return;
    state.set("pose.along", key);
    sweep();
  }
  function choose(input) {
    state.set("input", input);
    state.set("pose.off", null);
    choice.mark();
    look();
  }

  function plot(key, answer) {
    app.paint(moved, answer.image);
    const [, name, , , , , unit] = MOVES.find(([other]) => other === key);
    const label = info.classes[answer.label];
    const axis = { x: unit ? `${name}, ${{ px: "pixels", "°": "degrees", "×": "factor" }[unit]}` : `${name}, slope` };
    const series = [{ values: answer.lengths, label: `length of the capsule of ${label}`, color: "var(--c0)" }];
    if (answer.cnn) series.push({ values: answer.cnn, label: `the CNN's probability of ${label}`, color: "var(--c3)", dash: "5 4" });
    app.linePlot(lengthPlot, { series, x: answer.places, yRange: [0, 1], mark: wanted()[key], height: 215,
      labels: { ...axis, y: "Is it still there?" }, title: "Length of the capsule and probability of the CNN along the way" });
    const dims = answer.poses[0].map((_, d) => answer.poses.map((row) => row[d]));
    const spread = dims.map((values) => Math.max(...values) - Math.min(...values));
    const most = spread.map((_, d) => d).sort((a, b) => spread[b] - spread[a]).slice(0, 4);
    const high = Math.max(0.3, ...dims.flat().map(Math.abs));
    app.linePlot(posePlot, {
      series: [
        ...dims.map((values) => ({ values, color: "color-mix(in srgb, var(--muted) 32%, transparent)", width: 1.2 })),
        ...most.map((d, n) => ({ values: dims[d], label: `dimension ${d + 1}`, color: `var(--c${[0, 1, 2, 4][n]})` })),
      ],
      x: answer.places, yRange: [-high, high], mark: wanted()[key], height: 215,
      labels: { ...axis, y: "How its pose moves" }, title: "The dimensions of the pose along the way",
    });
    const best = (values) => values.indexOf(Math.max(...values));
    const line = (who, values, colour) => el("span", {}, el("b", { class: colour }, who), ` say${who === "the capsules" ? "" : "s"} `,
      el("b", {}, info.classes[best(values)]), ` at ${Math.max(...values).toFixed(2)}`);
    says.replaceChildren(line("the capsules", answer.now.capsules, "blue"), answer.now.cnn ? line("the CNN", answer.now.cnn, "red") : "");
  }

  gridBox.addEventListener("click", (event) => {
    if (!found || !grid.dataset.rows) return;
    const box = grid.getBoundingClientRect();
    const columns = JSON.parse(grid.dataset.offsets);
    const row = Math.floor((event.clientY - box.top) / box.height * Number(grid.dataset.rows));
    const column = Math.floor((event.clientX - box.left) / box.width * columns.length);
    const all = offsets().slice();
    all[row] = Number(Math.max(-REACH, Math.min(REACH, all[row] + columns[column])).toFixed(2));
    setOffsets(all.some(Boolean) ? all : null);
  });

  if (!info.decoder) {
    decoderless.hidden = false;
    for (const part of [sliders, gridBox.parentNode.parentNode, drawn.parentNode.parentNode, reset]) part.hidden = true;
  }
  reset.disabled = !state.get("pose.off", null);
  look();
  return {
    unmount() {},
    onState() {
      choice.mark();
      look();
    },
  };
}
