// @ts-check
/** The panel Introduction: one minute about capsules, and tasks that lead through the other panels. */
import { el } from "../lib/dom.js";
import { explain } from "../lib/glossary.js";
import { isDone, resetTasks, taskList, tasksFor } from "../lib/tasks.js";
import { CHAPTERS } from "./intro/chapters.js";
import { loadStory } from "./intro/material.js";
import { StoryPlayer } from "./intro/player.js";

/** @type {import("../app.js").Panel} */
export const panel = {
  title: "Introduction",
  hint: () =>
    "One minute on what a [[capsule]] is, and how capsules find out together what they see. Then try it yourself: " +
    "the tasks lead through the panels, and every underlined word explains itself.",
  mount: (root, app) => new IntroPanel(root, app),
};

const PANEL_NAMES = { toy: "The toy", draw: "Draw", pose: "Pose", routing: "Routing", clusters: "Clusters" };

class IntroPanel {
  #root;
  #app;
  #player;
  #title = el("h2", { class: "chapter-title" });
  #text = el("p", { class: "chapter-text", "aria-live": "polite" });
  #count = el("span", { class: "muted small" });

  /**
   * @param {HTMLElement} root
   * @param {import("../app.js").App} app
   */
  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    this.#player = new StoryPlayer(CHAPTERS, (chapter) => this.#showChapter(chapter));
    root.append(this.#layout());
    this.#countTasks();
    this.#start();
  }

  unmount() {
    this.#player.stop();
  }

  async #start() {
    const story = await loadStory(this.#app).catch(() => null);
    if (!story || !this.#root.isConnected) return;
    const chapter = this.#app.state.get("intro.chapter");
    this.#player.begin(story, Number.isInteger(chapter) ? chapter : null);
  }

  #layout() {
    const next = () => this.#app.state.set("panel", "toy", { now: true });
    return el(
      "div",
      { class: "cards intro" },
      el(
        "div",
        { class: "card story" },
        this.#player.root,
        this.#title,
        this.#text,
        this.#player.controls,
        el("p", {}, el("button", { type: "button", class: "primary", onclick: next }, "Go to the toy ▸")),
      ),
      el(
        "div",
        { class: "card" },
        el("div", { class: "row between top" }, el("h2", {}, "Your way through the panels"), this.#count),
        Object.entries(PANEL_NAMES).map(([id, name]) => this.#taskGroup(id, name)),
        el("button", { type: "button", class: "small", onclick: () => this.#reset() }, "Reset tasks"),
      ),
    );
  }

  /**
   * @param {string} id
   * @param {string} name
   */
  #taskGroup(id, name) {
    const tasks = tasksFor(this.#app.info, id);
    return el("section", { class: "task-group" }, el("h3", {}, name), taskList(tasks, this.#app.openTask));
  }

  #reset() {
    resetTasks();
    this.#countTasks();
  }

  #countTasks() {
    const tasks = tasksFor(this.#app.info);
    this.#count.textContent = `${tasks.filter(({ id }) => isDone(id)).length} of ${tasks.length} done`;
  }

  /** @param {number} at */
  #showChapter(at) {
    const { title, text } = CHAPTERS[at];
    this.#app.state.set("intro.chapter", at || null);
    this.#title.textContent = `${at + 1}. ${title}`;
    this.#text.replaceChildren(...explain(text));
  }
}
