// The frame: tabs, theme, the state in the address, and what every panel is given.
import { State } from "./state.js";
import { el, linePlot, palette } from "./dom.js";
import { paint, unpack } from "./pixels.js";

const state = new State();
const status = document.getElementById("status");
const app = { api, state, palette, el, linePlot, latest, paint, unpack, say, info: null };

// POST JSON to /api/<path>, or GET it where there is no body. What goes wrong is said in the quiet line and thrown.
async function api(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  try {
    const response = await fetch(`api/${path}`, options).catch(() => {
      throw new Error("the playground does not answer; is it still running?");
    });
    const answer = await response.json().catch(() => ({ error: `no answer in JSON (status ${response.status})` }));
    if (!response.ok) throw new Error(answer.error ?? `status ${response.status}`);
    say("");
    return answer;
  } catch (error) {
    say(error.message);
    throw error;
  }
}

function say(sentence) {
  status.textContent = sentence;
}

// At most one call of `fn` under way; of those that come meanwhile only the newest is kept. A call that was dropped, or
// that failed (which the quiet line has said), gives undefined.
function latest(fn) {
  let busy = false;
  let next = null;
  async function run(args, done) {
    busy = true;
    try {
      done(await fn(...args));
    } catch (error) {
      if (!status.textContent) say(error.message);
      done(undefined);
    }
    busy = false;
    if (next) {
      const { args: newest, done: then } = next;
      next = null;
      run(newest, then);
    }
  }
  return (...args) => new Promise((done) => {
    if (!busy) return run(args, done);
    next?.done(undefined);
    next = { args, done };
  });
}

let mounted = null;
let shown = null;
const panels = new Map();

function show(id) {
  if (shown === id) return;
  shown = id;
  for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
    const chosen = tab.dataset.panel === id;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  mounted?.unmount?.();
  mounted = null;
  say("");
  const root = document.getElementById("panel");
  const { panel, lacking } = panels.get(id);
  root.replaceChildren();
  root.className = `panel-${id}`;
  root.setAttribute("aria-labelledby", `tab-${id}`);
  document.getElementById("hint").textContent = panel.hint;
  document.title = `${panel.title} · torchcaps playground`;
  if (lacking) root.append(el("p", { class: "lacking" }, lacking));
  else mounted = panel.mount(root, app) ?? null;
}

function tabs() {
  const bar = document.getElementById("tabs");
  for (const [id, { panel }] of panels) {
    bar.append(el("button", {
      type: "button", role: "tab", id: `tab-${id}`, "data-panel": id, "aria-controls": "panel",
      onclick: () => state.set("panel", id, { now: true }),
    }, panel.title));
  }
  bar.addEventListener("keydown", (event) => {
    const ids = [...panels.keys()];
    const at = ids.indexOf(shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const id = ids[(to + ids.length) % ids.length];
    state.set("panel", id, { now: true });
    document.getElementById(`tab-${id}`).focus();
  });
}

function theme() {
  const wanted = state.get("theme", null);
  if (wanted === "dark" || wanted === "light") document.documentElement.dataset.theme = wanted;
  else delete document.documentElement.dataset.theme;
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  state.set("theme", dark ? "light" : "dark", { now: true });
});

document.getElementById("share").addEventListener("click", async () => {
  state.flush();
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link to this view is in the clipboard.");
  } catch {
    say("The address above is the link to this view: copy it from there.");
  }
});

async function begin() {
  app.info = await api("info");
  document.documentElement.classList.toggle("ink", app.info.ink);
  document.getElementById("network").textContent = app.info.about;
  const loaded = await Promise.all(app.info.panels.map(({ id }) => import(`./panels/${id}.js`)));
  app.info.panels.forEach(({ id, lacking }, n) => panels.set(id, { panel: loaded[n].panel, lacking }));
  tabs();
  const first = panels.keys().next().value;
  const follow = (changed) => {
    theme();
    const wanted = state.get("panel", first);
    const id = panels.has(wanted) ? wanted : first;
    if (id !== shown) show(id);
    else mounted?.onState?.(changed);
  };
  state.onset = (key) => { if (key === "panel" || key === "theme") follow([key]); };
  state.onaddress = follow;
  follow([]);
  document.documentElement.dataset.ready = "yes";
}

theme();
begin().catch((error) => say(error.message));
