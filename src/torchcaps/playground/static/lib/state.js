// @ts-check
/** The state of the page in its address: `#key=value&...`, values in JSON, so that a link restores a view. */
import { clamp } from "./numbers.js";

/** Milliseconds: browsers limit how often a page may change its address. */
const WRITE_DELAY = 200;

export class State {
  /** @type {((key: string) => void) | null} Called when the page sets a value. */
  onSet = null;
  /** @type {((changedKeys: string[]) => void) | null} Called when the address changes, by a link or the back button. */
  onAddress = null;
  /** @type {Map<string, any>} */
  #values = new Map();
  #hash = "";
  #timer = 0;

  constructor() {
    this.#read();
    addEventListener("hashchange", () => {
      clearTimeout(this.#timer);
      this.onAddress?.(this.#read());
    });
    addEventListener("pagehide", () => this.flush());
  }

  /**
   * The value of a key. It can be anything, since anyone can write a link.
   *
   * @param {string} key
   * @param {unknown} [fallback]
   * @returns {any}
   */
  get(key, fallback = null) {
    return this.#values.has(key) ? this.#values.get(key) : fallback;
  }

  /**
   * A value that is one of the given choices.
   *
   * @template {string} Choice
   * @param {string} key
   * @param {readonly Choice[]} choices
   * @param {Choice} fallback
   * @returns {Choice}
   */
  choice(key, choices, fallback) {
    const value = this.#values.get(key);
    return choices.includes(value) ? value : fallback;
  }

  /**
   * A value rounded to an integer and limited to a range.
   *
   * @param {string} key
   * @param {import("./numbers.js").Range} range
   * @param {number} fallback
   */
  integer(key, range, fallback) {
    const value = this.#values.get(key);
    return Number.isFinite(value) ? clamp(Math.round(value), range) : fallback;
  }

  /**
   * Set a value; null and undefined remove it. The address follows a moment later, or with `now` at once.
   *
   * @param {string} key
   * @param {unknown} value
   * @param {{ now?: boolean }} [options]
   */
  set(key, value, { now = false } = {}) {
    if (value === undefined || value === null) this.#values.delete(key);
    else this.#values.set(key, value);
    clearTimeout(this.#timer);
    if (now) this.flush();
    else this.#timer = setTimeout(() => this.flush(), WRITE_DELAY);
    this.onSet?.(key);
  }

  /** Write the values to the address. */
  flush() {
    clearTimeout(this.#timer);
    // The address has changed and its event is still to come: do not overwrite it.
    if (location.hash !== this.#hash) return;
    const params = new URLSearchParams();
    for (const [key, value] of this.#values) params.set(key, JSON.stringify(value));
    history.replaceState(null, "", params.size ? `#${params}` : location.pathname);
    this.#hash = location.hash;
  }

  /** Read the address, and return the keys whose values changed. */
  #read() {
    const before = this.#values;
    this.#values = new Map();
    this.#hash = location.hash;
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
      try {
        this.#values.set(key, JSON.parse(value));
      } catch {
        // A truncated link: its readable values still count.
      }
    }
    const keys = new Set([...before.keys(), ...this.#values.keys()]);
    return [...keys].filter((key) => JSON.stringify(before.get(key)) !== JSON.stringify(this.#values.get(key)));
  }
}
