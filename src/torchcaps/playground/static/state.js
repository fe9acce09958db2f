// What is seen, kept in the address behind the #: key=value, each value in JSON, so that a link restores a view.
export class State {
  onset = null;
  onaddress = null;
  #values = new Map();
  #known = "";
  #timer = 0;

  constructor() {
    this.#read();
    addEventListener("hashchange", () => {
      clearTimeout(this.#timer);
      this.onaddress?.(this.#read());
    });
    addEventListener("pagehide", () => this.flush());
  }

  get(key, fallback) {
    return this.#values.has(key) ? this.#values.get(key) : fallback;
  }

  // A whole number as near to what the address says as the bounds allow, or the fallback where it says none.
  whole(key, [low, high], fallback) {
    const value = this.#values.get(key);
    return Number.isFinite(value) ? Math.min(high, Math.max(low, Math.round(value))) : fallback;
  }

  // The address follows a moment later, since browsers do not like to be told a hundred times a second; `now` at once.
  set(key, value, { now = false } = {}) {
    if (value === undefined || value === null) this.#values.delete(key);
    else this.#values.set(key, value);
    clearTimeout(this.#timer);
    if (now) this.flush();
    else this.#timer = setTimeout(() => this.flush(), 200);
    this.onset?.(key);
  }

  flush() {
    clearTimeout(this.#timer);
    // Another address has come, by the back button say, and the word of it is still on its way: it is not written over.
    if (location.hash !== this.#known) return;
    const words = new URLSearchParams();
    for (const [key, value] of this.#values) words.set(key, JSON.stringify(value));
    history.replaceState(null, "", words.size ? `#${words}` : location.pathname);
    this.#known = location.hash;
  }

  // Gives the keys whose values are others than before.
  #read() {
    const before = this.#values;
    this.#values = new Map();
    this.#known = location.hash;
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
      try {
        this.#values.set(key, JSON.parse(value));
      } catch {
        // A link that was cut off: what can be read of it is shown.
      }
    }
    const text = (values, key) => JSON.stringify(values.get(key));
    return [...new Set([...before.keys(), ...this.#values.keys()])].filter((key) => text(before, key) !== text(this.#values, key));
  }
}
