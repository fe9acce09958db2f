// @ts-check
/** The glossary: one explanation of every term, shown on hover and focus, and read by screen readers. */
import { byId, el } from "./dom.js";

/** Explanations by term. A text marks a term as [[term]], or as [[term|other words]]. */
export const GLOSSARY = {
  capsule: "A group of neurons for one thing. Its output is a vector: is the thing there (activation), and how (pose)?",
  pose: "How a thing is: position, angle, size, and what else a network learned, such as the thickness of a stroke.",
  activation: "A number from 0 to 1: whether the thing of a capsule is present. For a vector capsule it is the length.",
  length: "The length of a capsule's vector, from 0 to 1. It is the activation: how sure the capsule is.",
  part: "A capsule of the lower layer. In the papers: child capsule.",
  whole: "A capsule of the higher layer, made of parts. In the papers: parent capsule.",
  vote: "What a part predicts for a whole: if I am the roof, the house must be here, turned like this, and this large.",
  agreement: "How well a vote matches the pose of a whole, which is the centre of the votes that it received.",
  coupling: "The share of a part that goes to each whole. The shares of a part, with that of no whole, add up to 1.",
  "no whole": "The place for stray parts: the leak of dynamic routing, the background of EM. It needs no votes.",
  routing: "The computation that finds the coupling: votes that agree attract more coupling, iteration by iteration.",
  router: "A routing algorithm: dynamic routing, EM, k-means and others.",
  iteration: "One round of routing: compute the wholes from the coupling, then the coupling from the agreement.",
  "dynamic routing": "Sabour et al. 2017: the dot product of vote and pose is added to the logits in every iteration.",
  EM: "Hinton et al. 2018: every whole is a Gaussian that explains votes. Its activation is the gain of doing so.",
  "k-means": "Clustering: every point goes to the nearest centre, and every centre to the mean of its points.",
  logit: "A number before the softmax. The larger the logit of a whole, the larger its coupling.",
  entropy: "How evenly the coupling is spread, from 0 (one whole gets all) to 1 (all get the same).",
  temperature: "Low values make decisions sharp. EM begins with a high temperature and lowers it.",
  "primary capsule": "A capsule of the lowest layer. It sees a small field of the image and reports what is there.",
  "class capsule": "A capsule of the last layer: one for each class. The longest one is the prediction.",
  "receptive field": "The pixels that can change a capsule.",
  reconstruction: "The image that the decoder draws from the pose of one class capsule.",
  decoder: "A network that draws an image from the pose of a class capsule. It is trained to redraw the input.",
  dimension: "One number of a pose. In a trained network it often stands for one property, such as slant or thickness.",
  "max-pooling":
    "Keeping only the strongest response over all places. It says that a part is there, and forgets where.",
  CNN: "A convolutional neural network without capsules, trained on the same images.",
  relevance:
    "Coupling times activation at each place: where the votes for a class come from. It is no proof of a cause.",
  probability: "Activations turned into probabilities with a temperature that was fitted on the validation split.",
  cluster: "A group of points that are near each other. To a router, votes are such points.",
};

/** @typedef {keyof typeof GLOSSARY} Term */

const tooltip = el("div", { id: "tooltip", role: "tooltip", hidden: true });

/** Put the glossary and its tooltip on the page. */
export function installGlossary() {
  const entries = Object.entries(GLOSSARY).map(([name, text]) => el("p", { id: idOf(name) }, text));
  byId("glossary").append(...entries);
  document.body.append(tooltip);
  addEventListener("keydown", (event) => event.key === "Escape" && hideTooltip());
  addEventListener("scroll", hideTooltip, { passive: true, capture: true });
}

const idOf = (/** @type {string} */ name) => `term-${name.replace(/\W/g, "-")}`;

/**
 * A term with its explanation.
 *
 * @param {string} name A term of the glossary.
 * @param {string} [text] The words that are shown.
 */
export function term(name, text = name) {
  if (!Object.hasOwn(GLOSSARY, name)) throw new Error(`no term ${name} in the glossary`);
  const node = el(
    "dfn",
    {
      class: "term",
      tabindex: 0,
      "aria-describedby": idOf(name),
      onpointerenter: () => showTooltip(node, name),
      onpointerleave: hideTooltip,
      onfocus: () => showTooltip(node, name),
      onblur: hideTooltip,
      onclick: () => showTooltip(node, name),
    },
    text,
  );
  return node;
}

/**
 * Text with its terms.
 *
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function explain(text) {
  return text.split(/\[\[(.*?)\]\]/).map((part, n) => {
    if (n % 2 === 0) return part;
    const [name, shown] = part.split("|");
    return term(name, shown);
  });
}

/**
 * @param {HTMLElement} node
 * @param {string} name
 */
function showTooltip(node, name) {
  tooltip.textContent = GLOSSARY[/** @type {Term} */ (name)];
  tooltip.hidden = false;
  const box = node.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), innerWidth - width - 8);
  const below = box.bottom + 8 + height < innerHeight;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${below ? box.bottom + 8 : box.top - height - 8}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}
