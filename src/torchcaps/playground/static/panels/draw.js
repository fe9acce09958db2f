export const panel = {
  id: "draw", title: "Draw", hint: "Draw a digit and watch the lengths of the class capsules follow. Each capsule draws back what it sees.",
  mount(root, app) { root.append(app.el("p", {}, "soon")); return { unmount() {} }; },
};
