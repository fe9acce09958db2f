// @ts-check
/** A note where the reconstructions of a network are not worth a look. */
import { el } from "./dom.js";
import { explain } from "./glossary.js";

/**
 * @param {Api.InfoResponse} info
 * @returns {HTMLElement | null} Null if the decoder is good or was not measured.
 */
export function reconstructionNote({ reconstruction }) {
  if (!reconstruction?.poor) return null;
  const { error, mean_error } = reconstruction;
  const verdict = error > mean_error ? "worse" : "hardly better";
  const text =
    `Ignore the images of this network: the [[decoder]] is ${verdict} than the mean image ` +
    `(squared error ${error.toFixed(4)}, mean image ${mean_error.toFixed(4)}). Longer training or a larger weight of ` +
    "the reconstruction loss may help.";
  return el("p", { class: "note", id: "reconstruction-note" }, explain(text));
}
