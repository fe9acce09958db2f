// @ts-check
/** The frame of the page: tabs, theme, sharing, and the panel that is shown. */
import { getInfo, messageOf } from "./lib/api.js";
import { byId, el } from "./lib/dom.js";
import { State } from "./lib/state.js";
import { showStatus } from "./lib/status.js";
import { applyTheme, isDark } from "./lib/theme.js";

/** @typedef {{ state: State, info: Api.InfoResponse }} App What every panel gets. */

/**
 * @typedef {object} MountedPanel A panel on the page.
 * @property {() => void} [unmount]
 * @property {(changedKeys: string[]) => void} [onAddress] Called when the address changes.
 */

/**
 * @typedef {object} Panel The export `panel` of a file in panels/.
 * @property {string} title
 * @property {string} hint Two sentences: what to do and what to look for.
 * @property {(root: HTMLElement, app: App) => MountedPanel} mount
 */

/** @typedef {{ panel: Panel, unavailableReason: string | null }} Tab */

const state = new State();
/** @type {Map<string, Tab>} */
const tabs = new Map();
/** @type {MountedPanel | null} */
let mounted = null;
/** @type {string | null} */
let shown = null;

/**
 * Show a panel.
 *
 * @param {string} id
 * @param {App} app
 */
function showPanel(id, app) {
  const tab = tabs.get(id);
  if (!tab) return;
  shown = id;
  selectTab(id);
  mounted?.unmount?.();
  mounted = null;
  showStatus("");
  const { panel, unavailableReason } = tab;
  const root = byId("panel");
  root.replaceChildren();
  root.className = `panel-${id}`;
  root.setAttribute("aria-labelledby", `tab-${id}`);
  byId("hint").textContent = panel.hint;
  document.title = `${panel.title} · torchcaps playground`;
  if (unavailableReason) root.append(el("p", { class: "unavailable" }, unavailableReason));
  else mounted = panel.mount(root, app);
}

/** @param {string} id */
function selectTab(id) {
  for (const name of tabs.keys()) {
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === id));
    tab.tabIndex = name === id ? 0 : -1;
    if (name === id) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function addTabs() {
  const bar = byId("tabs");
  for (const [id, { panel }] of tabs) {
    const attributes = { type: "button", role: "tab", id: `tab-${id}`, "data-panel": id, "aria-controls": "panel" };
    const onclick = () => state.set("panel", id, { now: true });
    bar.append(el("button", { ...attributes, onclick }, panel.title));
  }
  bar.addEventListener("keydown", selectTabByKey);
}

/** @param {KeyboardEvent} event */
function selectTabByKey(event) {
  const ids = [...tabs.keys()];
  const at = ids.indexOf(shown ?? ids[0]);
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

/** @param {Api.PanelInfo} info */
async function loadPanel({ id, unavailable_reason }) {
  const { panel } = await import(`./panels/${id}.js`);
  return { id, panel, unavailableReason: unavailable_reason };
}

async function start() {
  applyTheme(state.get("theme"));
  byId("theme").addEventListener("click", () => state.set("theme", isDark() ? "light" : "dark", { now: true }));
  byId("share").addEventListener("click", shareLink);
  const info = await getInfo();
  const app = { state, info };
  document.documentElement.classList.toggle("ink", info.ink);
  byId("network").textContent = info.about;
  for (const { id, ...tab } of await Promise.all(info.panels.map(loadPanel))) tabs.set(id, tab);
  addTabs();
  const follow = (/** @type {string[]} */ changedKeys) => {
    applyTheme(state.get("theme"));
    const id = state.choice("panel", [...tabs.keys()], info.panels[0].id);
    if (id !== shown) showPanel(id, app);
    else mounted?.onAddress?.(changedKeys);
  };
  state.onSet = (key) => {
    if (key === "panel" || key === "theme") follow([key]);
  };
  state.onAddress = follow;
  follow([]);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => showStatus(messageOf(error)));
