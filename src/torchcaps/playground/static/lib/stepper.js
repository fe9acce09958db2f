// @ts-check
/** Step, play and scrub through the iterations of a routing. */
import { el, hasModifier } from "./dom.js";
import { clamp } from "./numbers.js";

/** Milliseconds between two iterations while playing, and for all of them together. */
const INTERVAL = 600;
const MAX_DURATION = 5000;
const stillQuery = matchMedia("(prefers-reduced-motion: reduce)");

export class Stepper {
  #count = 1;
  #at = 0;
  #timer = 0;
  #onChange;

  /** @param {(at: number) => void} onChange Called when another iteration is shown. */
  constructor(onChange) {
    this.#onChange = onChange;
    this.back = this.#button("◂", "One iteration back", () => this.#stepTo(this.#at - 1));
    this.play = this.#button("▶", "Play", () => (this.#timer ? this.stop() : this.#start()));
    this.forward = this.#button("▸", "One iteration on", () => this.#stepTo(this.#at + 1));
    this.play.classList.add("primary");
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "Iteration",
      oninput: () => this.#stepTo(Number(this.slider.value)),
    });
    this.text = el("output", { class: "step-text small", "aria-label": "Iteration" });
    this.node = el(
      "div",
      { class: "stepper", role: "group", "aria-label": "Iterations", onkeydown: this.#onKey },
      this.back,
      this.play,
      this.forward,
      this.slider,
      this.text,
    );
    this.#render();
  }

  /** The iteration that is shown, from 0. */
  get at() {
    return this.#at;
  }

  get isPlaying() {
    return this.#timer !== 0;
  }

  get isAtEnd() {
    return this.#at === this.#count - 1;
  }

  /**
   * Set the number of iterations. The last iteration stays the last one, unless `at` names another.
   *
   * @param {number} count
   * @param {unknown} [at]
   */
  setCount(count, at) {
    const wanted = typeof at === "number" ? Math.floor(at) : this.isAtEnd ? count - 1 : this.#at;
    this.#count = count;
    this.#at = clamp(wanted, [0, count - 1]);
    this.#render();
  }

  /**
   * Show the first iteration and play once; without motion if the user prefers that.
   *
   * @param {number} count
   */
  begin(count) {
    this.setCount(count, 0);
    if (!stillQuery.matches && count > 1) this.#start();
  }

  /** End playing, at the last iteration. */
  finish() {
    if (this.#timer) this.#stepTo(this.#count - 1);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#render();
  }

  #start() {
    clearInterval(this.#timer);
    if (this.isAtEnd) this.#show(0);
    this.#timer = setInterval(
      () => {
        this.#show(this.#at + 1);
        if (this.isAtEnd) this.stop();
      },
      Math.min(INTERVAL, MAX_DURATION / this.#count),
    );
    this.#render();
  }

  /** @param {number} at */
  #stepTo(at) {
    this.stop();
    this.#show(at);
  }

  /** @param {number} at */
  #show(at) {
    const next = clamp(at, [0, this.#count - 1]);
    if (next !== this.#at) {
      this.#at = next;
      this.#onChange(next);
    }
    this.#render();
  }

  #onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.target === this.slider || hasModifier(event)) return;
    /** @type {Record<string, number>} */
    const targets = { ArrowLeft: this.#at - 1, ArrowRight: this.#at + 1, Home: 0, End: this.#count - 1 };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.#stepTo(targets[event.key]);
  };

  /**
   * @param {string} text
   * @param {string} label
   * @param {() => void} onclick
   */
  #button(text, label, onclick) {
    return el("button", { type: "button", class: "step", "aria-label": label, title: label, onclick }, text);
  }

  #render() {
    const playing = this.#timer !== 0;
    this.back.disabled = this.#at === 0;
    this.forward.disabled = this.isAtEnd;
    this.play.disabled = this.slider.disabled = this.#count < 2;
    this.slider.max = String(this.#count - 1);
    this.slider.value = String(this.#at);
    this.slider.setAttribute("aria-valuetext", `iteration ${this.#at + 1} of ${this.#count}`);
    this.text.textContent = `iteration ${this.#at + 1} / ${this.#count}`;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.title = playing ? "Pause" : "Play";
    this.play.setAttribute("aria-label", this.play.title);
  }
}
