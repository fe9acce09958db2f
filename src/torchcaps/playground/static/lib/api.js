// @ts-check
/** Requests to the server. */
import { hasStatus, showStatus } from "./status.js";

let network = "";

/**
 * Choose the network of all further requests.
 *
 * @param {string} name Empty for the first network of the server.
 */
export function setNetwork(name) {
  network = name;
}

export const currentNetwork = () => network;

/**
 * POST a body to an endpoint. An error is shown in the status line and thrown.
 *
 * @template {keyof Api.Endpoints} Path
 * @param {Path} path
 * @param {Api.Endpoints[Path]["body"]} body
 * @returns {Promise<Api.Endpoints[Path]["response"]>}
 */
export function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** @returns {Promise<Api.InfoResponse>} */
export function getInfo() {
  return request("info", {});
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function request(path, options) {
  try {
    const query = network ? `?network=${encodeURIComponent(network)}` : "";
    const response = await fetch(`api/${path}${query}`, options).catch(() => {
      throw new Error("the server does not respond; is it still running?");
    });
    const body = await response.json().catch(() => ({ error: `expected JSON, got status ${response.status}` }));
    if (!response.ok) throw new Error(body.error ?? `status ${response.status}`);
    showStatus("");
    return body;
  } catch (error) {
    showStatus(messageOf(error));
    throw error;
  }
}

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Limit an asynchronous function to one call at a time.
 *
 * Of the calls that arrive meanwhile only the newest is made afterwards. A skipped call resolves to undefined, and so
 * does a failed one, whose error is in the status line.
 *
 * @template {unknown[]} Args
 * @template Result
 * @param {(...args: Args) => Promise<Result>} fn
 * @returns {(...args: Args) => Promise<Result | undefined>}
 */
export function latest(fn) {
  let busy = false;
  /** @type {{ args: Args, resolve: (result: Result | undefined) => void } | null} */
  let next = null;

  /**
   * @param {Args} args
   * @param {(result: Result | undefined) => void} resolve
   */
  async function run(args, resolve) {
    busy = true;
    try {
      resolve(await fn(...args));
    } catch (error) {
      if (!hasStatus()) showStatus(messageOf(error));
      resolve(undefined);
    }
    busy = false;
    if (!next) return;
    const waiting = next;
    next = null;
    run(waiting.args, waiting.resolve);
  }

  return (...args) =>
    new Promise((resolve) => {
      if (!busy) {
        run(args, resolve);
        return;
      }
      next?.resolve(undefined);
      next = { args, resolve };
    });
}
