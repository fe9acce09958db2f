// @ts-check
/** The scenes of the toy: their names, and what each of them shows. */

/** @typedef {Api.SceneRequest["name"]} SceneName */

/** @type {Record<SceneName, { text: string, lesson: string }>} Each scene, and what it shows. */
export const SCENES = {
  both: {
    text: "A house and a boat",
    lesson: "Four votes agree on one house, four on one boat: every [[part]] finds its [[whole]].",
  },
  house: { text: "A house", lesson: "Four votes agree on one house. The votes for a boat scatter: no boat." },
  boat: {
    text: "A boat",
    lesson: "The same kinds of parts as a house, arranged as a boat: the votes tell them apart.",
  },
  stray: {
    text: "A house and a stray part",
    lesson: "The stray triangle agrees with no other vote. It goes to [[no whole]].",
  },
  crowded: {
    text: "A crowded scene",
    lesson: "House and boat overlap among stray parts. [[agreement|Agreement]] sorts them out.",
  },
  "two houses": {
    text: "Two houses",
    lesson:
      "There is one house [[capsule]], and it has one [[pose]]: it cannot hold both. EM keeps one, " +
      "[[dynamic routing]] mixes both into a house between them. Drag a part of the blue house: EM takes the other.",
  },
  "upside-down": {
    text: "The upside-down house",
    lesson:
      "Walls and sail also form an upside-down house, but it explains two parts only. House and boat explain all " +
      "eight, and win.",
  },
  face: { text: "A face", lesson: "Eyes, nose and mouth in their places: both detectors say face." },
  picasso: {
    text: "The Picasso face",
    lesson:
      "The right parts in wrong places. [[max-pooling|Max-pooling]] sees all parts and says face; the votes " +
      "disagree, and [[agreement]] says no.",
  },
  random: {
    text: "Random parts",
    lesson:
      "Parts at random: no votes agree, and no part belongs to a [[whole]]. EM finds no whole; dynamic routing stays " +
      "undecided, near one half. Arrange them!",
  },
};

/** @type {SceneName[]} Scenes without houses. */
export const FACES = ["face", "picasso"];
