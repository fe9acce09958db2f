// @ts-check
/** Small tasks that lead through the panels; those that are done are kept by the browser. */
import { el } from "./dom.js";

/**
 * @typedef {object} Task
 * @property {string} id
 * @property {string} panel
 * @property {string} text
 * @property {Record<string, unknown>} [view] State that opens the panel where the task can be done.
 * @property {"digits" | "decoder"} [needs] What a network must have.
 */

/** @type {Task[]} */
const TASKS = [
  {
    id: "roof",
    panel: "toy",
    text: "Turn the roof until the house disappears.",
    view: { "toy.scene": "both", "toy.parts": null, "toy.selected": null, "toy.routing": null },
  },
  {
    id: "stray",
    panel: "toy",
    text: "Drag a part away until it belongs to no whole.",
    view: { "toy.scene": "both", "toy.parts": null },
  },
  {
    id: "picasso",
    panel: "toy",
    text: "Open the Picasso face: which detector is fooled?",
    view: { "toy.scene": "picasso", "toy.parts": null, "toy.selected": null },
  },
  { id: "draw", panel: "draw", text: "Draw something that a capsule recognises with a length above 0.8." },
  {
    id: "pair",
    panel: "draw",
    text: "Lay two digits over each other, and have both read.",
    view: { network: "multimnist" },
    needs: "digits",
  },
  {
    id: "dimension",
    panel: "pose",
    text: "Move one dimension by 0.2: what does it change?",
    view: { "pose.view": null },
    needs: "decoder",
  },
  {
    id: "rotate",
    panel: "pose",
    text: "Rotate the input until the prediction changes.",
    view: { "pose.view": "transform" },
  },
  { id: "step", panel: "routing", text: "Step from the first iteration to the last." },
  { id: "matters", panel: "routing", text: "Open an image where routing changes the prediction." },
  { id: "outlier", panel: "clusters", text: "Add a point far from all groups." },
];

/**
 * The tasks that are possible with a network: one that opens another network needs that one, too.
 *
 * @param {Api.InfoResponse} info
 * @param {string} [panel] Only those of a panel.
 */
export function tasksFor(info, panel) {
  return TASKS.filter(
    (task) =>
      (!panel || task.panel === panel) &&
      (!task.needs || info[task.needs]) &&
      (!task.view?.network || info.networks.some(({ name }) => name === task.view?.network)),
  );
}

const STORAGE_KEY = "torchcaps.tasks";
const listeners = new Set();

/** @returns {string[]} */
function load() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((id) => TASKS.some((task) => task.id === id)) : [];
  } catch {
    // The browser keeps nothing for this page, or someone else wrote it.
    return [];
  }
}

const done = new Set(load());

/** @param {string} id */
export const isDone = (id) => done.has(id);

/**
 * Check a task off.
 *
 * @param {string} id
 */
export function completeTask(id) {
  if (done.has(id)) return;
  done.add(id);
  store();
}

export function resetTasks() {
  done.clear();
  store();
}

function store() {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify([...done]));
  } catch {
    // They are done for as long as the page is open.
  }
  for (const listener of listeners) listener();
}

/**
 * A list of tasks that are checked off as they are done.
 *
 * @param {Task[]} tasks
 * @param {(task: Task) => void} onOpen Called when a task is clicked.
 */
export function taskList(tasks, onOpen) {
  const rows = tasks.map((task) => {
    const mark = el("span", { class: "mark", "aria-hidden": "true" });
    const state = el("span", { class: "visually-hidden" });
    const onclick = () => onOpen(task);
    const button = el(
      "button",
      { type: "button", class: "task", "data-task": task.id, onclick },
      mark,
      task.text,
      state,
    );
    return { task, button, mark, state };
  });
  const update = () => {
    for (const { task, button, mark, state } of rows) {
      const finished = done.has(task.id);
      button.classList.toggle("done", finished);
      mark.textContent = finished ? "✓" : "";
      state.textContent = finished ? " (done)" : " (to do)";
    }
    // A list that left the page is not updated any more.
    if (!root.isConnected && wasShown) listeners.delete(update);
    wasShown = root.isConnected;
  };
  let wasShown = false;
  const root = el(
    "ul",
    { class: "tasks" },
    rows.map(({ button }) => el("li", {}, button)),
  );
  listeners.add(update);
  update();
  return root;
}
