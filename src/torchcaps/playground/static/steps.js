// Step, play and scrub through iterations: native buttons and a slider, the same for every panel that has iterations.
import { el } from "./dom.js";

const PAUSE = 650;

// `onchange(at)` is called when the iteration shown changes. Arrows, Home and End work on all of the group.
export function stepper(onchange) {
  let count = 1;
  let at = 0;
  let timer = 0;
  const back = el("button", { type: "button", class: "step", "aria-label": "One iteration back", onclick: () => go(at - 1) }, "‹");
  const play = el("button", { type: "button", class: "step primary", "aria-label": "Play", onclick: () => (timer ? stop() : start()) }, "▶");
  const on = el("button", { type: "button", class: "step", "aria-label": "One iteration on", onclick: () => go(at + 1) }, "›");
  const slider = el("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Iteration", oninput: () => go(Number(slider.value)) });
  const text = el("output", { class: "step-text small" });
  const node = el("div", { class: "stepper", role: "group", "aria-label": "Iterations" }, back, play, on, slider, text);

  function show() {
    back.disabled = at === 0;
    on.disabled = at === count - 1;
    play.disabled = slider.disabled = count < 2;
    slider.max = count - 1;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `iteration ${at + 1} of ${count}`);
    text.textContent = `${at + 1} / ${count}`;
    play.textContent = timer ? "❚❚" : "▶";
    play.setAttribute("aria-label", timer ? "Pause" : "Play");
  }

  function move(to) {
    const next = Math.max(0, Math.min(count - 1, to));
    if (next !== at) {
      at = next;
      onchange(at);
    }
    show();
  }

  function go(to) {
    stop();
    move(to);
  }

  function start() {
    if (at === count - 1) move(0);
    timer = setInterval(() => {
      move(at + 1);
      if (at === count - 1) stop();
    }, PAUSE);
    show();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    show();
  }

  node.addEventListener("keydown", (event) => {
    if (event.target === slider || event.ctrlKey || event.altKey || event.metaKey) return;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  });
  show();
  return {
    node,
    stop,
    get at() { return at; },
    // The end stays the end when the number of iterations changes, unless it is said where to be.
    set(total, wanted) {
      const ended = at >= count - 1;
      count = total;
      const to = typeof wanted === "number" ? Math.floor(wanted) : (ended ? total - 1 : at);
      at = Math.max(0, Math.min(total - 1, to));
      show();
    },
  };
}
