// @ts-check
/** The frame of the page: tabs, network, theme, sharing, and the panel that is shown. */
import { aboutNetwork } from "./lib/about.js";
import { getInfo, messageOf, setNetwork } from "./lib/api.js";
import { byId, el, options } from "./lib/dom.js";
import { explain, installGlossary } from "./lib/glossary.js";
import { State } from "./lib/state.js";
import { showStatus } from "./lib/status.js";
import { taskList, tasksFor } from "./lib/tasks.js";
import { applyTheme, isDark } from "./lib/theme.js";
import { acceptUploads } from "./lib/upload.js";

/**
 * @typedef {object} App What every panel gets.
 * @property {State} state
 * @property {Api.InfoResponse} info
 * @property {(task: import("./lib/tasks.js").Task) => void} openTask
 * @property {(view: Record<string, unknown>) => void} open Set several values of the state, and show that view.
 */

/**
 * @typedef {object} MountedPanel A panel on the page.
 * @property {() => void} [unmount]
 * @property {(changedKeys: string[]) => void} [onAddress] Called when the address changes.
 */

/**
 * @typedef {object} Panel The export `panel` of a file in panels/.
 * @property {string} title
 * @property {(info: Api.InfoResponse) => string} hint Two sentences, with terms of the glossary: what to do and see.
 * @property {(root: HTMLElement, app: App) => MountedPanel} mount
 */

const state = new State();
/** @type {Map<string, Panel>} */
const panels = new Map();
/** @type {MountedPanel | null} */
let mounted = null;
/** @type {string | null} The panel and the network that are shown. */
let shown = null;
/** @type {App | null} */
let app = null;

/**
 * Show a panel.
 *
 * @param {string} id
 * @param {App} shownApp
 */
function showPanel(id, shownApp) {
  const panel = panels.get(id);
  if (!panel) return;
  const { info } = shownApp;
  selectTab(id);
  mounted?.unmount?.();
  mounted = null;
  showStatus("");
  const root = byId("panel");
  root.replaceChildren();
  root.className = `panel-${id}`;
  root.setAttribute("aria-labelledby", `tab-${id}`);
  byId("hint").replaceChildren(...explain(panel.hint(info)));
  const tasks = tasksFor(info, id);
  byId("tasks").replaceChildren(...(tasks.length ? [el("span", {}, "Try"), taskList(tasks, shownApp.openTask)] : []));
  document.title = `${panel.title} · torchcaps playground`;
  const reason = info.panels.find((entry) => entry.id === id)?.unavailable_reason;
  if (reason) root.append(el("p", { class: "unavailable" }, reason));
  else mounted = panel.mount(root, shownApp);
}

/** @param {string} id */
function selectTab(id) {
  for (const name of panels.keys()) {
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === id));
    tab.tabIndex = name === id ? 0 : -1;
    if (name === id) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function addTabs() {
  const bar = byId("tabs");
  for (const [id, panel] of panels) {
    const attributes = { type: "button", role: "tab", id: `tab-${id}`, "data-panel": id, "aria-controls": "panel" };
    const onclick = () => state.set("panel", id, { now: true });
    bar.append(el("button", { ...attributes, onclick }, panel.title));
  }
  bar.addEventListener("keydown", selectTabByKey);
}

/** The panel that the address names, or the first. */
const currentPanel = () => state.choice("panel", [...panels.keys()], [...panels.keys()][0]);

/** @param {KeyboardEvent} event */
function selectTabByKey(event) {
  const ids = [...panels.keys()];
  const at = ids.indexOf(currentPanel());
  /** @type {Record<string, number>} */
  const targets = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 };
  if (!(event.key in targets)) return;
  event.preventDefault();
  const id = ids[(targets[event.key] + ids.length) % ids.length];
  state.set("panel", id, { now: true });
  byId(`tab-${id}`).focus();
}

async function shareLink() {
  state.flush();
  try {
    await navigator.clipboard.writeText(location.href);
    showStatus("The link to this view is in the clipboard.");
  } catch {
    showStatus("Copy the link to this view from the address bar.");
  }
}

function toggleAbout() {
  const about = byId("about");
  about.hidden = !about.hidden;
  byId("help").setAttribute("aria-expanded", String(!about.hidden));
}

/** @param {Api.PanelInfo} info */
async function loadPanel({ id }) {
  const { panel } = await import(`./panels/${id}.js`);
  return { id, panel };
}

/** The network that the address names; empty for the first, and for one that does not exist. */
function currentNetwork() {
  const [first, ...others] = (app?.info.networks ?? []).map(({ name }) => name);
  return app ? state.choice("network", others, "") || first : "";
}

/** Ask the server about the network that the address names. */
async function loadNetwork() {
  const first = app?.info.networks[0].name;
  const name = currentNetwork();
  setNetwork(name === first ? "" : name);
  const info = await getInfo();
  app = { state, info, openTask, open: openView };
  document.documentElement.classList.toggle("ink", info.ink);
  const select = /** @type {HTMLSelectElement} */ (byId("network"));
  select.replaceChildren(...options(Object.fromEntries(info.networks.map((one) => [one.name, one.name]))));
  select.value = info.network;
  select.title = info.about;
  byId("network-choice").hidden = info.networks.length < 2;
  byId("about").replaceChildren(...aboutNetwork(info));
}

/**
 * @param {Record<string, unknown>} view
 */
function openView(view) {
  state.onSet = null;
  for (const [key, value] of Object.entries(view)) state.set(key, value);
  state.flush();
  state.onSet = onSet;
  shown = null;
  follow(Object.keys(view));
}

/** @param {import("./lib/tasks.js").Task} task */
function openTask({ panel, view = {} }) {
  openView({ ...view, panel });
}

/** @param {string[]} changedKeys */
async function follow(changedKeys) {
  applyTheme(state.get("theme"));
  if (app && currentNetwork() !== app.info.network) await loadNetwork().catch(() => null);
  if (!app) return;
  const id = currentPanel();
  const view = `${app.info.network} ${id}`;
  if (view === shown) mounted?.onAddress?.(changedKeys);
  else {
    shown = view;
    showPanel(id, app);
  }
}

/** @param {string} key */
function onSet(key) {
  if (key === "panel" || key === "theme" || key === "network") follow([key]);
}

async function start() {
  applyTheme(state.get("theme"));
  installGlossary();
  byId("theme").addEventListener("click", () => state.set("theme", isDark() ? "light" : "dark", { now: true }));
  byId("share").addEventListener("click", shareLink);
  byId("help").addEventListener("click", toggleAbout);
  byId("network").addEventListener("change", (event) => {
    const { value } = /** @type {HTMLSelectElement} */ (event.target);
    state.set("network", value === app?.info.networks[0].name ? null : value, { now: true });
  });
  await loadNetwork();
  if (!app) return;
  for (const { id, panel } of await Promise.all(app.info.panels.map(loadPanel))) panels.set(id, panel);
  addTabs();
  acceptUploads(() => {
    const seesImages = ["draw", "pose", "routing"].includes(currentPanel());
    openView({ input: "upload", panel: seesImages ? currentPanel() : "draw" });
  });
  state.onSet = onSet;
  state.onAddress = follow;
  await follow([]);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => showStatus(messageOf(error)));
