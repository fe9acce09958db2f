// What the network looks at, shared by the panels: a sample, two samples on top of each other, or the drawing.
import { raster, read } from "./strokes.js";

const FIRST = 3;
const SHOWN = 20;

// A number, [number, number], or "drawing".
export function current(app) {
  const input = app.state.get("input", FIRST);
  const valid = (n) => Number.isInteger(n) && n >= 0 && n < app.info.samples;
  if (input === "drawing") return input;
  if (Array.isArray(input) && input.length === 2 && input.every(valid)) return input;
  return valid(input) ? input : Math.min(FIRST, app.info.samples - 1);
}

export function strokesOf(app) {
  return read(app.state.get("strokes", ""));
}

// The same as the server's `Source`.
export function source(app) {
  const input = current(app);
  if (input === "drawing") return { drawing: raster(strokesOf(app)) };
  return Array.isArray(input) ? { sample: input[0], second: input[1] } : { sample: input };
}

const fetched = new Map();

function samples(app, start) {
  if (!fetched.has(start)) fetched.set(start, app.api("draw/samples", { start, count: SHOWN }));
  return fetched.get(start);
}

// Small pictures to choose from, and the drawing where there is one. `choose` is called with what was clicked.
export function picker(app, choose, { drawing = true } = {}) {
  const { el } = app;
  const strip = el("div", { class: "strip", role: "group", "aria-label": "Images of the data" });
  const own = el("button", { type: "button", class: "small", onclick: () => choose("drawing") }, "your drawing");
  const more = el("button", { type: "button", class: "small", onclick: () => turn() }, "others");
  const root = el("div", { class: "picker" }, strip, el("div", { class: "row" }, more, drawing ? own : null));
  more.hidden = app.info.samples <= SHOWN;

  const start = () => {
    const last = [current(app)].flat().at(-1);
    const wanted = app.state.whole("page", [0, app.info.samples - 1], last === "drawing" ? 0 : last);
    return Math.floor(wanted / SHOWN) * SHOWN;
  };
  async function turn() {
    app.state.set("page", start() + SHOWN < app.info.samples ? start() + SHOWN : 0);
    await fill();
  }
  async function fill() {
    const first = start();
    const { images, labels } = await samples(app, first);
    const unpacked = app.unpack(images);
    strip.replaceChildren(...labels.map((label, n) => {
      const canvas = el("canvas");
      app.paint(canvas, unpacked, n);
      const name = app.info.classes[label];
      return el("button", {
        type: "button", class: "tile", "data-sample": first + n, title: name, "aria-label": `sample ${first + n}: ${name}`,
        onclick: () => choose(first + n),
      }, canvas);
    }));
    mark();
  }
  function mark() {
    const chosen = [current(app)].flat();
    for (const button of strip.children) {
      button.setAttribute("aria-pressed", String(chosen.includes(Number(button.dataset.sample))));
    }
    own.hidden = !strokesOf(app).length;
    own.setAttribute("aria-pressed", String(chosen[0] === "drawing"));
  }
  fill().catch(() => {});
  return { root, mark };
}
