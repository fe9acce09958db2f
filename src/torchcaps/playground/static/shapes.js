// What a triangle and a rectangle look like about their own origin, and where a pose takes them; y goes down.

export const OUTLINES = {
  triangle: [[0, -0.55], [1.1, 0.55], [-1.1, 0.55]],
  rectangle: [[-1, -0.5], [1, -0.5], [1, 0.5], [-1, 0.5]],
};

// The pose of something inside the frame of something else.
export function within(frame, pose) {
  const turn = frame.angle * Math.PI / 180;
  const [cos, sin] = [Math.cos(turn) * frame.size, Math.sin(turn) * frame.size];
  return {
    x: frame.x + cos * pose.x - sin * pose.y, y: frame.y + sin * pose.x + cos * pose.y,
    angle: frame.angle + pose.angle, size: frame.size * pose.size,
  };
}

export function transform({ x, y, angle, size }) {
  return `translate(${x.toFixed(3)} ${y.toFixed(3)}) rotate(${angle.toFixed(2)}) scale(${size.toFixed(4)})`;
}

// The corners of a part that stands at a pose.
export const outlineOf = (kind, pose) => OUTLINES[kind].map(([x, y]) => {
  const corner = within(pose, { x, y, angle: 0, size: 1 });
  return [corner.x, corner.y];
});

export const corners = (kind) => OUTLINES[kind].map((corner) => corner.join(",")).join(" ");

// What is read on a colour, #rrggbb: white on dark ones, black on bright ones.
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

// Colours mixed by weights that sum to 1, each colour as #rrggbb.
export function blend(colours, weights) {
  const mixed = [1, 3, 5].map((at) => {
    const sum = weights.reduce((total, weight, n) => total + weight * parseInt(colours[n].slice(at, at + 2), 16), 0);
    return Math.round(Math.max(0, Math.min(255, sum))).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}
