// @ts-check
/** The light or dark theme: that of the system, or the one in the address. */

const darkQuery = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

/**
 * Apply a theme; anything but "dark" or "light" follows the system.
 *
 * @param {unknown} theme
 */
export function applyTheme(theme) {
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  else delete root.dataset.theme;
  root.dataset.scheme = isDark() ? "dark" : "light";
}

export function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : darkQuery.matches;
}

darkQuery.addEventListener("change", () => applyTheme(root.dataset.theme));
