// Pictures as the server sends them ({count, width, height, channels, data}) and how they get onto a canvas.

export function unpack(images) {
  if (images.bytes) return images;
  const text = atob(images.data);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  return { ...images, bytes };
}

// Paint image number `at` onto a canvas at its own size; style sheets enlarge it. Strokes are painted as black ink on
// nothing, which the theme turns over where paper is dark; other images as they are. tint: [[r, g, b], ...] mixes as many
// images, `at` being their numbers, each in its colour.
export function paint(canvas, images, at = 0, { tint = null, ink = document.documentElement.classList.contains("ink") } = {}) {
  const { width, height, channels, bytes } = unpack(images);
  canvas.width = width;
  canvas.height = height;
  canvas.classList.toggle("inked", ink && !tint && channels === 1);
  const context = canvas.getContext("2d");
  const out = context.createImageData(width, height);
  const size = width * height;
  const dark = tint && getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  for (let n = 0; n < size; n++) {
    let rgba;
    if (tint) rgba = mix([at].flat().map((k) => bytes[k * size + n]), tint, dark);
    else if (channels === 3) rgba = [...bytes.subarray((at * size + n) * 3, (at * size + n) * 3 + 3), 255];
    else if (ink) rgba = [0, 0, 0, bytes[at * size + n]];
    else rgba = [bytes[at * size + n], bytes[at * size + n], bytes[at * size + n], 255];
    out.data.set(rgba, 4 * n);
  }
  context.putImageData(out, 0, 0);
}

// Where strokes cross, colours add up like light on dark ground, and darken like ink on paper.
function mix(levels, colours, dark) {
  const strong = Math.max(...levels);
  if (!strong) return [0, 0, 0, 0];
  const total = dark ? strong : levels.reduce((sum, level) => sum + level, 0);
  const dim = dark ? 1 : 1.35 - 0.7 * (total / strong - 0.5);
  const sum = [0, 1, 2].map((c) => levels.reduce((all, level, k) => all + level / total * colours[k][c], 0) * Math.min(1, dim));
  return [...sum.map((value) => Math.min(255, value)), strong];
}
