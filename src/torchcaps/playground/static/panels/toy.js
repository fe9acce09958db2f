import { boxAt, drawNames } from "../names.js";
import { BOUNDS, MOST, clamp, pack, turned, two, unpack } from "../parts.js";
import { blend, corners, outlineOf, transform, within } from "../shapes.js";
import { stepper } from "../steps.js";
import { DASHES, Numbers, nameOf } from "../toynumbers.js";

const SCENES = {
  house: "A house", boat: "A boat", both: "A house and a boat", stray: "A house and a stray part",
  "upside-down": "The upside-down house", random: "Parts at random",
};
const ROUTINGS = { em: "EM", dynamic: "Dynamic", kmeans: "k-means" };
const SEEDS = 1_000_000;

function mount(root, app) {
  const { el, state } = app;
  let parts = [];
  // Raised where parts are added, taken away or loaded, not where they move: an answer about others is none.
  let era = 0;
  let loads = 0;
  let chosen = 0;
  let answer = null;
  let held = null;
  const colours = (n) => app.palette[n];
  const option = ([value, text]) => el("option", { value }, text);
  const wanted = (key, fallback, known) => {
    const value = state.get(`toy.${key}`, fallback);
    return known.includes(value) ? value : fallback;
  };
  const seedOf = () => state.whole("toy.seed", [0, SEEDS], 0);

  const scene = el("select", { "aria-label": "Scene", onchange: () => load(scene.value) }, Object.entries(SCENES).map(option));
  const again = el("button", { type: "button", onclick: () => load("random", (seedOf() + 1) % SEEDS) }, "Others");
  const routing = el("select", { "aria-label": "Routing", onchange: () => change("routing", routing.value) }, Object.entries(ROUTINGS).map(option));
  const third = el("input", { type: "checkbox", onchange: () => change("third", third.checked) });
  const ghosts = el("select", { "aria-label": "Votes shown", onchange: () => { state.set("toy.votes", ghosts.value); draw(); } },
    [["all", "votes of all"], ["chosen", "votes of the chosen"], ["none", "no votes"]].map(option));
  const steps = stepper((at) => { state.set("toy.at", at); draw(); });

  const layer = { wholes: el("g"), names: el("g"), votes: el("g"), parts: el("g"), handle: el("g") };
  const stage = el("svg", { viewBox: "-6 -4 12 8", class: "stage", role: "group", "aria-label": "The scene: parts that can be moved and turned" },
    el("path", { class: "ground", d: "M-6 0H6M0 -4V4" }), layer.parts, layer.votes, layer.wholes, layer.names, layer.handle);
  const sliders = Object.fromEntries([["angle", "Turn", 1], ["size", "Size", 0.01]].map(([name, text, step]) => {
    const [min, max] = BOUNDS[name];
    const input = el("input", { type: "range", min, max, step, "aria-label": text, oninput: () => edit({ [name]: Number(input.value) }) });
    return [name, { input, output: el("output", { class: "small number" }), text }];
  }));
  const chosenName = el("h2", {});
  const remove = el("button", { type: "button", onclick: () => drop() }, "Remove");
  const adders = ["triangle", "rectangle"].map((kind) => el("button", { type: "button", onclick: () => add(kind) }, `+ ${kind}`));
  const numbers = new Numbers(app, choose);

  root.append(el("div", { class: "cards stage-cards" },
    el("div", { class: "card" },
      el("div", { class: "row choices" }, scene, again, routing, ghosts, el("label", { class: "row check" }, third, "look for an upside-down house")),
      stage, steps.node,
      el("div", { class: "picked" }, el("div", { class: "row" }, chosenName, el("span", { class: "grow" }), ...adders, remove),
        Object.values(sliders).map(({ input, output, text }) => el("label", { class: "slide" }, text, input, output))),
      el("p", { class: "muted small keys" }, "Drag a part, or its ring to turn it. Keys on a part: arrows move, q and e turn, + and − size, Delete removes; with Shift more at once."),
    ),
    numbers.root,
  ));

  const ask = app.latest((body) => app.api("toy/route", body));

  async function route(at) {
    const asked = era;
    // Answers come one at a time, in the order of the questions: each is shown, though parts have moved on meanwhile.
    const given = await ask({ parts, routing: routing.value, iters: 8, upside_down: third.checked });
    if (!given || asked !== era) return;
    answer = { ...given, era };
    steps.set(answer.iterations.length, at);
    draw();
  }

  // What a link says of the view comes before what the scene would show.
  async function load(name, seed = seedOf(), view = {}) {
    const mine = ++loads;
    const found = await app.api("toy/scene", { name, seed }).catch(() => null);
    if (!found || mine !== loads) return;
    state.set("toy.scene", name);
    state.set("toy.seed", seed || null);
    scene.value = name;
    third.checked = view.third ?? found.upside_down;
    steps.stop();
    await replace(found.parts, view.chosen ?? 0, view.at);
  }

  function replace(next, first, at) {
    era += 1;
    chosen = Math.min(first, next.length - 1);
    return keep(next, at);
  }

  function keep(next, at) {
    // As exact as the address is, so that a link shows the very same numbers.
    parts = unpack(pack(next));
    again.hidden = scene.value !== "random";
    state.set("toy.parts", pack(parts));
    state.set("toy.third", third.checked || null);
    state.set("toy.chosen", chosen || null);
    drawParts();
    return route(at);
  }

  function change(key, value) {
    state.set(`toy.${key}`, value || null);
    return route();
  }

  function edit(values, n = chosen) {
    keep(parts.map((part, m) => (m !== n ? part : {
      ...part, ...values,
      x: clamp(values.x ?? part.x, BOUNDS.x), y: clamp(values.y ?? part.y, BOUNDS.y),
      angle: turned(values.angle ?? part.angle), size: clamp(values.size ?? part.size, BOUNDS.size),
    })));
  }

  function add(kind) {
    if (parts.length >= MOST) return app.say(`At most ${MOST} parts.`);
    return replace([...parts, { kind, x: 0, y: 2.6, angle: 0, size: 1.2 }], parts.length);
  }

  function drop() {
    if (parts.length < 2) return app.say("One part has to stay.");
    return replace(parts.filter((_, n) => n !== chosen), chosen).then(() => layer.parts.children[chosen]?.focus());
  }

  const now = () => answer?.iterations[steps.at];
  // While an answer to added or removed parts is on its way, the old one has too few or too many rows.
  const matches = () => answer?.era === era;

  function choose(n) {
    chosen = n;
    state.set("toy.chosen", n || null);
    draw();
  }

  function at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(stage.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  function grab(event, n, turning) {
    if (event.button) return;
    event.preventDefault();
    const [x, y] = at(event);
    const part = parts[n];
    held = { n, turning, dx: part.x - x, dy: part.y - y, pointer: event.pointerId };
    stage.setPointerCapture(event.pointerId);
    stage.classList.add("held");
    choose(n);
    layer.parts.children[n]?.focus({ preventScroll: true });
  }

  stage.addEventListener("pointermove", (event) => {
    if (!held || event.pointerId !== held.pointer) return;
    const [x, y] = at(event);
    const part = parts[held.n];
    if (held.turning) edit({ angle: Math.round(Math.atan2(x - part.x, part.y - y) * 180 / Math.PI) }, held.n);
    else edit({ x: x + held.dx, y: y + held.dy }, held.n);
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    stage.addEventListener(end, () => { held = null; stage.classList.remove("held"); });
  }

  function key(event, n) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const far = event.shiftKey ? 5 : 1;
    const part = parts[n];
    const moves = {
      ArrowLeft: { x: part.x - 0.1 * far }, ArrowRight: { x: part.x + 0.1 * far },
      ArrowUp: { y: part.y - 0.1 * far }, ArrowDown: { y: part.y + 0.1 * far },
      q: { angle: part.angle - 3 * far }, e: { angle: part.angle + 3 * far },
      "+": { size: part.size * 1.05 }, "=": { size: part.size * 1.05 }, "-": { size: part.size / 1.05 }, "_": { size: part.size / 1.05 },
    };
    const move = moves[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      chosen = n;
      drop();
    } else if (move) {
      event.preventDefault();
      chosen = n;
      edit(move, n);
    }
  }

  // Elements stay as long as their number does, so that focus and pointer are kept while parts move.
  function drawParts() {
    if (layer.parts.children.length !== parts.length) {
      layer.parts.replaceChildren(...parts.map((_, n) => el("g", {
        class: "part", tabindex: 0, role: "button",
        onpointerdown: (event) => grab(event, n, false), onkeydown: (event) => key(event, n), onfocus: () => { if (chosen !== n) choose(n); },
      }, el("polygon", {}), el("text", { class: "tag" }, String(n + 1)))));
    }
    const coupling = matches() ? now().coupling : null;
    parts.forEach((part, n) => {
      const node = layer.parts.children[n];
      const [shape, tag] = node.children;
      node.classList.toggle("is-chosen", n === chosen);
      node.setAttribute("aria-label", `${nameOf(parts, n)}: x ${two(part.x)}, y ${two(part.y)}, turned by ${Math.round(part.angle)} degrees, size ${two(part.size)}`);
      shape.setAttribute("points", corners(part.kind));
      shape.setAttribute("transform", transform(part));
      tag.setAttribute("x", part.x.toFixed(3));
      tag.setAttribute("y", (part.y + 0.13).toFixed(3));
      if (coupling) {
        const strong = Math.max(...coupling[n]);
        shape.setAttribute("fill", blend(coupling[n].map((_, j) => colours(j)), coupling[n]));
        shape.setAttribute("fill-opacity", (0.1 + 0.35 * strong).toFixed(2));
      }
    });
    drawHandle();
    const part = parts[chosen];
    chosenName.textContent = `Chosen: ${nameOf(parts, chosen)}`;
    for (const [name, { input, output }] of Object.entries(sliders)) {
      input.value = part[name];
      output.textContent = name === "angle" ? `${Math.round(part.angle)}°` : two(part.size);
    }
  }

  function drawHandle() {
    const part = parts[chosen];
    const reach = 0.55 * part.size + 0.55;
    const top = within({ ...part, size: 1 }, { x: 0, y: -reach, angle: 0, size: 1 });
    if (!layer.handle.firstChild) {
      layer.handle.append(el("line", { class: "handle-line" }), el("circle", {
        class: "handle", r: 0.17, onpointerdown: (event) => grab(event, chosen, true),
      }));
    }
    const [line, ring] = layer.handle.children;
    const edge = within(part, { x: 0, y: part.kind === "triangle" ? -0.55 : -0.5, angle: 0, size: 1 });
    for (const [name, value] of Object.entries({ x1: edge.x, y1: edge.y, x2: top.x, y2: top.y })) line.setAttribute(name, value.toFixed(3));
    ring.setAttribute("cx", top.x.toFixed(3));
    ring.setAttribute("cy", top.y.toFixed(3));
  }

  const outline = (whole, pose, attrs) => el("g", { fill: "none", ...attrs }, Object.entries(whole.places).map(([kind, place]) =>
    el("polygon", { points: corners(kind), transform: transform(within(pose, place)) })));

  // What a name must not cover: the parts, and the ring that turns one.
  function taken() {
    const [x, y, r] = ["cx", "cy", "r"].map((name) => Number(layer.handle.lastChild.getAttribute(name)));
    return [...parts.map((part) => outlineOf(part.kind, part)), boxAt([x, y], [2 * r, 2 * r])];
  }

  function draw() {
    drawParts();
    if (!matches()) return;
    const step = now();
    const shown = parts.map((_, n) => ghosts.value === "all" || (ghosts.value === "chosen" && n === chosen));
    layer.votes.replaceChildren(...answer.votes.flatMap((row, i) => (shown[i] ? row.map((vote, j) => outline(answer.wholes[j], vote, {
      class: "vote", stroke: colours(j), "stroke-dasharray": DASHES[j], "stroke-opacity": (0.06 + 0.84 * step.coupling[i][j]).toFixed(2),
    })) : [])));
    layer.wholes.replaceChildren(...answer.wholes.map((whole, j) => outline(whole, step.poses[j], {
      class: "whole", stroke: colours(j), "stroke-dasharray": DASHES[j], opacity: step.activations[j].toFixed(2),
    })));
    drawNames(layer.names, answer.wholes.map((whole, j) => ({
      name: whole.name, colour: colours(j), strength: step.activations[j],
      outlines: Object.entries(whole.places).map(([kind, place]) => outlineOf(kind, within(step.poses[j], place))),
    })), taken());
    numbers.show(answer, steps.at, parts, chosen);
  }

  async function restore() {
    scene.value = wanted("scene", "both", Object.keys(SCENES));
    routing.value = wanted("routing", "em", Object.keys(ROUTINGS));
    ghosts.value = wanted("votes", "all", ["all", "chosen", "none"]);
    const look = state.get("toy.third", null);
    third.checked = look === true;
    steps.stop();
    loads += 1;
    const kept = state.get("toy.parts", null);
    const found = kept === null ? null : unpack(kept);
    const at = state.get("toy.at", Infinity);
    const first = state.whole("toy.chosen", [0, MOST], 0);
    if (found) await replace(found, first, at);
    else await load(scene.value, undefined, { at, chosen: first, third: typeof look === "boolean" ? look : undefined });
  }

  again.hidden = true;
  restore();
  return {
    unmount() { steps.stop(); },
    onState(changes) {
      if (changes.some((key) => key.startsWith("toy."))) restore();
    },
  };
}

export const panel = {
  id: "toy", title: "The toy",
  hint: "Each part votes, in thin outlines, for the house and the boat that it would be a part of: step through the iterations and see votes that agree win while the others fade. "
    + "Then drag or turn a part until its vote is an outlier: it loses its coupling, and the whole its activation.",
  mount,
};
