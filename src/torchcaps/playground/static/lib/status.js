// @ts-check
/** The status line at the foot of the page. */
import { byId } from "./dom.js";

const line = byId("status");

/** @param {string} message */
export function showStatus(message) {
  line.textContent = message;
}

export function hasStatus() {
  return line.textContent !== "";
}
