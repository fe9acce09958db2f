// @ts-check
/** What the page shows: the network, its limitations, the papers, and where to read on. */
import { el } from "./dom.js";

/** Papers; the page has no links to other hosts. */
const PAPERS = [
  "Sabour, Frosst, Hinton 2017: Dynamic routing between capsules (arXiv 1710.09829)",
  "Hinton, Sabour, Frosst 2018: Matrix capsules with EM routing (ICLR 2018)",
  "Mazzia, Salvetti, Chiaberge 2021: Efficient-CapsNet (arXiv 2101.12491)",
];

/**
 * @param {Api.InfoResponse} info
 * @returns {HTMLElement[]}
 */
export function aboutNetwork(info) {
  const [channels, height, width] = info.image_shape;
  const kind = channels === 3 ? "colour" : "grey";
  const facts = [
    `${info.about}. Input: ${height} × ${width} pixels, ${kind}; ${info.classes.length} classes.`,
    ...info.limitations,
  ];
  const papers = PAPERS.map((paper) => el("li", {}, paper));
  return [
    el("h2", {}, `The network ${info.network}`),
    el(
      "ul",
      {},
      facts.map((text) => el("li", {}, text)),
    ),
    el("h2", {}, "Read on"),
    el(
      "ul",
      {},
      papers,
      el("li", {}, "The page “The playground” of the documentation; ", el("code", {}, "torchcaps play --help")),
    ),
    el("p", { class: "muted small" }, `torchcaps ${info.version}. The page sends nothing to other hosts.`),
  ];
}
