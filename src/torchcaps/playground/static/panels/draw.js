import { current, picker, source, strokesOf } from "../input.js";
import { thin, trace, write } from "../strokes.js";

const RED = [213, 94, 0];
const GREEN = [0, 158, 115];
const PEN = 0.055;

export const panel = {
  id: "draw",
  title: "Draw",
  hint: "Draw a digit: the length of each class capsule says how sure the network is that it is there, and beside it is " +
    "what that capsule alone would draw. With two digits on top of each other, see whether two capsules take the strokes apart.",
  mount,
};

function mount(root, app) {
  const { el, state, info } = app;
  let strokes = strokesOf(app);
  // Where keys have led the pen, and the stroke that grows while it is down, by keys or by pointer.
  let pen = null;
  let line = null;
  const pairs = () => state.get("draw.two", false) === true;

  const pad = el("canvas", {
    id: "pad", width: 560, height: 560, tabindex: 0, role: "application",
    "aria-label": "Drawing pad. Arrow keys move the pen, space puts it down and lifts it, backspace takes a stroke back.",
  });
  const one = el("button", { type: "button", id: "one", onclick: () => mode(false) }, "one digit");
  const two = el("button", { type: "button", id: "two", onclick: () => mode(true) }, "two digits");
  const undo = el("button", { type: "button", id: "undo", onclick: takeBack }, "undo");
  const clear = el("button", { type: "button", id: "clear", onclick: empty }, "clear");
  const choice = picker(app, choose, { drawing: false });
  const got = el("canvas");
  const both = el("canvas");
  const bothName = el("figcaption", {});
  const bothFigure = el("figure", {}, el("div", { class: "tile" }, both), bothName);
  const rows = info.classes.map((name) => {
    const bar = el("div", { class: "bar eased" });
    const number = el("span", { class: "number" });
    const canvas = el("canvas");
    const row = el("div", { class: "class", role: "listitem" }, el("b", {}, name), el("div", { class: "track" }, bar), number,
      el("div", { class: "tile" }, canvas));
    return { row, bar, number, canvas };
  });
  const longest = Math.min(12, Math.max(2, ...info.classes.map((name) => name.length + 1)));
  const verdict = el("p", { class: "verdict", id: "verdict", "aria-live": "polite" });
  root.append(el("div", { class: "cards draw" },
    el("div", { class: "card" },
      el("div", { class: "row spread" }, el("div", { class: "segments" }, one, two), el("div", { class: "row" }, undo, clear)),
      el("div", { class: "tile pad" }, pad)),
    el("div", { class: "card pick" }, el("h2", {}, "or an image that the network has never seen"), choice.root),
    el("div", { class: "card" },
      el("div", { class: "seen" },
        el("figure", {}, el("div", { class: "tile" }, got), el("figcaption", {}, "what the network gets")), bothFigure, verdict),
      el("div", { class: `classes${info.decoder ? "" : " lengths-only"}`, role: "list", style: { "--name": `${longest}ch` } },
        el("div", { class: "class head", "aria-hidden": "true" }, el("span", {}, "class"), el("span", {}, "length of its capsule"),
          el("span", {}), el("span", {}, "draws")),
        rows.map(({ row }) => row)))));

  const context = pad.getContext("2d");
  let backdrop = null;

  function redraw() {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, pad.width, pad.height);
    pad.classList.add("inked");
    const sample = current(app) !== "drawing" && backdrop;
    if (sample) {
      context.imageSmoothingEnabled = true;
      context.drawImage(backdrop, 0, 0, pad.width, pad.height);
      pad.classList.toggle("inked", backdrop.classList.contains("inked"));
    }
    context.scale(pad.width, pad.height);
    context.strokeStyle = "#000";
    if (!sample) trace(context, strokes, PEN);
    if (document.activeElement !== pad || !pen) return;
    context.beginPath();
    context.arc(...pen, PEN / 2, 0, 7);
    // Light below dark, so that the ring is seen on ink and on paper.
    for (const [colour, width] of [["#fff", 0.013], ["#000", 0.005]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.stroke();
    }
  }

  const look = app.latest(async () => {
    const seen = await app.api("draw/look", { source: source(app) });
    if (!root.isConnected) return;
    app.paint(got, seen.image);
    backdrop = got;
    redraw();
    answer(seen);
  });

  function answer({ activations, reconstructions }) {
    const order = activations.map((_, n) => n).sort((a, b) => activations[b] - activations[a]);
    const pair = pairs();
    // An empty page is no digit, whatever capsule is the longest then.
    const nothing = current(app) === "drawing" && !strokes.length;
    const images = reconstructions && app.unpack(reconstructions);
    rows.forEach(({ row, bar, number, canvas }, n) => {
      bar.style.width = `${(100 * activations[n]).toFixed(1)}%`;
      number.textContent = activations[n].toFixed(2);
      const rank = nothing ? -1 : order.indexOf(n);
      row.className = `class${rank === 0 ? " first" : ""}${pair && rank === 1 ? " second" : ""}${pair ? " pair" : ""}`;
      if (images) app.paint(canvas, images, n);
    });
    bothFigure.hidden = !images || nothing;
    if (images) {
      const [a, b] = order;
      if (pair) app.paint(both, images, [a, b], { tint: [RED, GREEN] });
      else app.paint(both, images, a);
      bothName.replaceChildren(...(pair ? [el("b", { class: "red" }, info.classes[a]), " and ", el("b", { class: "green" }, info.classes[b])]
        : [`what the ${info.classes[a]} draws`]));
    }
    verdict.textContent = nothing ? "nothing yet" : pair ? `${info.classes[order[0]]} + ${info.classes[order[1]]}` : info.classes[order[0]];
  }

  function mode(pair) {
    state.set("draw.two", pair || null);
    if (!pair && Array.isArray(current(app))) state.set("input", current(app)[0]);
    if (pair && typeof current(app) === "number") state.set("input", [current(app), (current(app) + 2) % info.samples]);
    press();
    look();
  }
  function press() {
    const pair = pairs();
    one.setAttribute("aria-pressed", String(!pair));
    two.setAttribute("aria-pressed", String(pair));
    const drawn = current(app) === "drawing";
    undo.disabled = clear.disabled = !drawn || !strokes.length;
    choice.mark();
  }
  function choose(sample) {
    const before = [current(app)].flat();
    const last = before.at(-1);
    line = null;
    state.set("input", pairs() && last !== "drawing" && last !== sample ? [last, sample] : sample);
    press();
    look();
  }
  function changed() {
    state.set("input", "drawing");
    state.set("strokes", write(strokes));
    press();
    redraw();
    look();
  }
  function begin(point) {
    if (current(app) !== "drawing") strokes = [];
    line = [point];
    strokes.push(line);
    changed();
  }
  function takeBack() {
    line = null;
    if (current(app) === "drawing") { strokes.pop(); changed(); }
  }
  function empty() {
    line = null;
    strokes = [];
    changed();
  }

  const place = (event) => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((v) => Math.min(1, Math.max(0, v)));
  };
  pad.addEventListener("pointerdown", (event) => {
    // A second finger draws nothing: the line would jump between the two.
    if (event.button !== 0 || !event.isPrimary) return;
    pad.setPointerCapture(event.pointerId);
    pen = null;
    begin(place(event));
  });
  pad.addEventListener("pointermove", (event) => {
    if (!line || !pad.hasPointerCapture(event.pointerId)) return;
    const before = line.length;
    for (const part of event.getCoalescedEvents?.() ?? [event]) thin(line, place(part));
    if (line.length === before) thin(line, place(event));
    if (line.length !== before) changed();
  });
  pad.addEventListener("lostpointercapture", () => { line = null; });
  pad.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    pen ??= [0.5, 0.3];
    if (move) {
      pen = pen.map((value, axis) => Math.min(0.95, Math.max(0.05, value + move[axis] * 0.04)));
      if (line) { thin(line, pen); changed(); } else redraw();
    } else if (event.key === " ") {
      if (line) line = null;
      else begin(pen);
    } else if (event.key === "Backspace") takeBack();
    else if (event.key === "Delete") empty();
    else return;
    event.preventDefault();
  });
  pad.addEventListener("focus", redraw);
  pad.addEventListener("blur", redraw);

  press();
  redraw();
  look();
  return {
    unmount() {},
    onState(changes) {
      if (changes.includes("strokes") || changes.includes("input")) {
        strokes = strokesOf(app);
        line = null;
      }
      press();
      redraw();
      look();
    },
  };
}
