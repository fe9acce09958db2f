import { picker, source } from "../input.js";
import { Way, shade } from "../way.js";

const OWN = "own";
const PAUSE = 900;
const ITERS = 10;

export const panel = {
  id: "routing",
  title: "Routing",
  hint: "Every dot is a primary capsule and its vote for the chosen class: blue ones speak to that class more than evenly, " +
    "orange ones less. Step through the iterations: the class moves into the cluster of votes that agree, and the others lose it.",
  mount,
};

function mount(root, app) {
  const { el, state, info } = app;
  let data = null;
  let timer = 0;

  const shown = el("canvas");
  const dots = el("svg", { class: "dots", viewBox: "0 0 1 1", "aria-hidden": "true" });
  const title = el("span", {});
  const scrub = el("input", { type: "range", id: "iteration", min: 1, max: 3, step: 1, "aria-label": "iteration", oninput: () => step(Number(scrub.value) - 1) });
  const count = el("output", { class: "number", id: "count" });
  const button = (id, text, name, onclick) => el("button", { type: "button", id, "aria-label": name, title: name, onclick }, text);
  const back = button("back", "◂", "one iteration back", () => step(at() - 1));
  const play = button("play", "▶", "play", toggle);
  const next = button("next", "▸", "one iteration on", () => step(at() + 1));
  const iters = el("select", { id: "iters", onchange: () => { state.set("routing.iters", Number(iters.value)); ask(); } },
    Array.from({ length: ITERS }, (_, n) => el("option", { value: n + 1 }, `${n + 1}`)));
  const choice = picker(app, (input) => {
    state.set("input", input);
    state.set("routing.parent", null);
    choice.mark();
    ask();
  });
  const ways = ["a", "b"].map((side) => {
    const select = el("select", { id: `router-${side}`, "aria-label": side === "a" ? "router" : "a second router", onchange: () => {
      state.set(`routing.${side}`, select.value === "" ? null : select.value);
      ask();
    } });
    const way = new Way(app, side, (label) => { state.set("routing.parent", label); ask(); });
    return { side, select, way, card: el("div", { class: "card way", id: `way-${side}` }, el("div", { class: "row spread top" }, select, way.says), way.root) };
  });

  root.append(el("div", { class: "routing" },
    el("div", { class: "card side" },
      el("div", { class: "tile layered" }, shown, dots),
      el("p", { class: "small muted caption" }, title)),
    el("div", { class: "card pick" }, choice.root),
    el("div", { class: "main" },
      el("div", { class: "card bar-card" },
        el("div", { class: "row player" }, back, play, next, scrub, count),
        el("label", { class: "row" }, "iterations", iters)),
      el("div", { class: "ways" }, ways.map(({ card }) => card)))));

  const names = app.api("routing/names", {}).then(({ routers, own }) => {
    const options = (first) => [...first, ...routers.map((name) => el("option", { value: name }, name.replace("_", "-")))];
    ways[0].select.replaceChildren(...options([el("option", { value: OWN }, `the network's own (${own})`)]));
    ways[1].select.replaceChildren(...options([el("option", { value: "" }, "compare with …"), el("option", { value: OWN }, `the network's own (${own})`)]));
    return { known: [OWN, ...routers], own };
  });

  const chosen = (known) => {
    const a = state.get("routing.a", OWN);
    const b = state.get("routing.b", null);
    return [known.includes(a) ? a : OWN, ...(known.includes(b) ? [b] : [])];
  };
  const ask = app.latest(async () => {
    const { known, own } = await names;
    const routers = chosen(known);
    const body = { source: source(app), routers, iters: state.whole("routing.iters", [1, ITERS], 3) };
    const parent = state.get("routing.parent", null);
    if (Number.isInteger(parent) && parent >= 0 && parent < info.classes.length) body.parent = parent;
    const answer = await app.api("routing/trace", body);
    if (!root.isConnected) return;
    data = answer;
    ways[0].select.value = routers[0];
    ways[1].select.value = routers[1] ?? "";
    iters.value = body.iters;
    iters.disabled = routers.every((name) => name === OWN);
    iters.title = iters.disabled ? "the network's own routing has as many as it was trained with" : "";
    app.paint(shown, data.image);
    draw();
    ways.forEach(({ way, card }, n) => {
      card.classList.toggle("empty", !data.ways[n]);
      way.fill(data, data.ways[n], { trained: [OWN, own].includes(routers[n]) });
      if (!data.ways[n]) way.says.textContent = "another router, on the same votes";
    });
    go(at());
  });

  const last = () => Math.max(...data.ways.map(({ path }) => path.length)) - 1;
  const at = () => {
    const wanted = state.get("routing.at", null);
    return Number.isInteger(wanted) ? Math.min(Math.max(wanted, 0), last()) : last();
  };
  function go(iteration) {
    if (!data) return;
    const to = Math.min(Math.max(iteration, 0), last());
    state.set("routing.at", to === last() ? null : to);
    scrub.max = last() + 1;
    scrub.value = to + 1;
    scrub.disabled = !last();
    count.textContent = `${to + 1} of ${last() + 1}`;
    back.disabled = to === 0;
    next.disabled = to === last();
    play.disabled = !last();
    data.ways.forEach((way, n) => ways[n].way.go(to));
    colour(Math.min(to, data.ways[0].path.length - 1));
  }
  // Whoever steps has stopped playing.
  function step(iteration) {
    stop();
    go(iteration);
  }
  function toggle() {
    if (timer) return stop();
    if (at() === last()) go(0);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "pause");
    timer = setInterval(() => {
      go(at() + 1);
      if (at() === last()) stop();
    }, PAUSE);
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶";
    play.setAttribute("aria-label", "play");
  }

  // The primary capsules over the picture: at each place its types, in a small square.
  function draw() {
    const side = Math.ceil(Math.sqrt(data.types));
    const gaps = data.places.flatMap(([row, column], n) => data.places.slice(n + 1)
      .map(([r, c]) => Math.max(Math.abs(r - row), Math.abs(c - column)))).filter((gap) => gap > 1e-6);
    const cell = (gaps.length ? Math.min(...gaps) : 0.9) * 0.92 / side;
    dots.replaceChildren(...data.present.map((present, n) => {
      const [row, column] = data.places[Math.floor(n / data.types)];
      const type = n % data.types;
      return el("circle", {
        cx: column + ((type % side) - (side - 1) / 2) * cell, cy: row + (Math.floor(type / side) - (side - 1) / 2) * cell,
        r: cell * 0.42 * Math.sqrt(Math.max(present, 0.02)),
      }, el("title", {}, `place ${Math.floor(n / data.types) + 1}, type ${type + 1}, present ${present.toFixed(2)}`));
    }));
    title.textContent = `${data.present.length} primary capsules: ${data.rows} × ${data.columns} places, ${data.types} types at each; ` +
      `at the centre of what each sees, coupled to ${info.classes[data.parent]} more (blue) or less (orange) than evenly${data.ways.length > 1 ? " by the first router" : ""}`;
  }
  function colour(iteration) {
    const coupling = data.ways[0].coupling[iteration];
    [...dots.children].forEach((dot, n) => dot.setAttribute("fill", shade(coupling[n] * info.classes.length)));
  }

  ask();
  return {
    unmount: stop,
    onState() {
      choice.mark();
      ask();
    },
  };
}
