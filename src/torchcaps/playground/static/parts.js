// Parts as the toy has them, how far they go, and how they are written in the address.

export const BOUNDS = { x: [-6, 6], y: [-4, 4], angle: [-180, 180], size: [0.5, 2] };
export const MOST = 12;

export const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
export const turned = (angle) => ((angle + 180) % 360 + 360) % 360 - 180;
export const two = (value) => value.toFixed(2).replace("-0.00", "0.00");

// Parts in the address: t or r, then x, y, size in hundredths and the angle in tenths of a degree.
export const pack = (parts) => parts.map(({ kind, x, y, angle, size }) =>
  kind[0] + [x * 100, y * 100, angle * 10, size * 100].map(Math.round).join(".")).join("~");

export function unpack(text) {
  const parts = String(text).split("~").slice(0, MOST).map((word) => {
    const [x, y, angle, size] = word.slice(1).split(".").map(Number);
    return {
      kind: word[0] === "r" ? "rectangle" : "triangle", x: clamp(x / 100, BOUNDS.x), y: clamp(y / 100, BOUNDS.y),
      angle: turned(angle / 10), size: clamp(size / 100, BOUNDS.size),
    };
  });
  return parts.every((part) => [part.x, part.y, part.angle, part.size].every(Number.isFinite)) ? parts : null;
}
