// @ts-check
/** Plays the chapters of the story, one after the other. */
import { el, svg } from "../../lib/dom.js";
import { clamp } from "../../lib/numbers.js";

const stillQuery = matchMedia("(prefers-reduced-motion: reduce)");

/**
 * @typedef {object} Chapter
 * @property {string} title
 * @property {string} text With terms of the glossary.
 * @property {number} seconds
 * @property {(story: import("./material.js").Story, time: number) => SVGElement[]} draw At a time from 0 to 1.
 */

export class StoryPlayer {
  #chapters;
  #onChapter;
  /** @type {import("./material.js").Story | null} */
  #story = null;
  #at = 0;
  /** Time in the chapter, from 0 to 1. */
  #time = 0;
  #frame = 0;
  #last = 0;
  root = svg("svg", { viewBox: "-6 -3.6 12 7.2", class: "stage story-stage", role: "img", "aria-label": "Animation" });
  #play = el("button", { type: "button", class: "primary step", onclick: () => this.#toggle() }, "▶");
  #back = this.#button("◂", "Previous chapter", -1);
  #next = this.#button("▸", "Next chapter", 1);
  #dots;

  /**
   * @param {readonly Chapter[]} chapters
   * @param {(at: number) => void} onChapter
   */
  constructor(chapters, onChapter) {
    this.#chapters = chapters;
    this.#onChapter = onChapter;
    this.#dots = chapters.map(({ title }, n) => {
      const fill = el("span", { class: "fill" });
      const onclick = () => this.#go(n);
      const button = el("button", { type: "button", class: "chapter", title, "aria-label": title, onclick }, fill);
      return { button, fill };
    });
    this.controls = el(
      "div",
      { class: "stepper", role: "group", "aria-label": "Story" },
      this.#back,
      this.#play,
      this.#next,
      el(
        "div",
        { class: "chapters" },
        this.#dots.map(({ button }) => button),
      ),
    );
  }

  /**
   * Play from the first chapter; a chapter that a link names is shown complete.
   *
   * @param {import("./material.js").Story} story
   * @param {number | null} chapter
   */
  begin(story, chapter) {
    this.#story = story;
    this.#at = clamp(chapter ?? 0, [0, this.#chapters.length - 1]);
    this.#time = 0;
    this.#onChapter(this.#at);
    if (stillQuery.matches) this.#time = 1;
    else if (chapter === null) this.#start();
    else this.#time = 1;
    this.#render();
  }

  stop() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#render();
  }

  /**
   * @param {string} text
   * @param {string} label
   * @param {number} step
   */
  #button(text, label, step) {
    const onclick = () => this.#go(this.#at + step);
    return el("button", { type: "button", class: "step", "aria-label": label, title: label, onclick }, text);
  }

  #toggle() {
    if (this.#frame) {
      this.stop();
      return;
    }
    if (this.#at === this.#chapters.length - 1 && this.#time >= 1) this.#show(0);
    else if (this.#time >= 1) this.#show(this.#at + 1);
    this.#start();
  }

  /** @param {number} at */
  #go(at) {
    this.#show(clamp(at, [0, this.#chapters.length - 1]));
    if (stillQuery.matches) this.#time = 1;
    else if (!this.#frame) this.#start();
    this.#render();
  }

  /** @param {number} at */
  #show(at) {
    this.#at = at;
    this.#time = 0;
    this.#onChapter(at);
  }

  #start() {
    this.#last = performance.now();
    this.#frame = requestAnimationFrame((now) => this.#tick(now));
  }

  /** @param {number} now */
  #tick(now) {
    this.#time += Math.min(now - this.#last, 100) / 1000 / this.#chapters[this.#at].seconds;
    this.#last = now;
    const isLast = this.#at === this.#chapters.length - 1;
    if (this.#time >= 1 && isLast) {
      this.#time = 1;
      this.stop();
      return;
    }
    if (this.#time >= 1) this.#show(this.#at + 1);
    this.#frame = requestAnimationFrame((next) => this.#tick(next));
    this.#render();
  }

  #render() {
    const playing = this.#frame !== 0;
    this.#play.textContent = playing ? "❚❚" : "▶";
    this.#play.title = playing ? "Pause" : "Play";
    this.#play.setAttribute("aria-label", this.#play.title);
    this.#back.disabled = this.#at === 0;
    this.#next.disabled = this.#at === this.#chapters.length - 1;
    this.#dots.forEach(({ button, fill }, n) => {
      button.setAttribute("aria-current", String(n === this.#at));
      fill.style.width = n < this.#at ? "100%" : n === this.#at ? `${(100 * this.#time).toFixed(1)}%` : "0";
    });
    if (this.#story) this.root.replaceChildren(...this.#chapters[this.#at].draw(this.#story, this.#time));
  }
}
