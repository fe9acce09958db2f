// @ts-check
/** Creation of HTML and SVG elements. */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
// Set as properties: as attributes they would only be initial values.
const PROPERTIES = new Set(["value", "checked", "disabled"]);

/** @typedef {Node | string | null | undefined | false} Child */
/** @typedef {Record<string, any>} Attributes Attributes by name; `on...` are listeners, `style` is an object. */

/**
 * Create an HTML element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Create an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} element
 * @param {Attributes} attributes
 * @param {(Child | Child[])[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  for (const child of children.flat()) if (child || child === "") element.append(child);
  return element;
}

/**
 * @param {HTMLElement | SVGElement} element
 * @param {string} name
 * @param {any} value
 */
function setAttribute(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") {
    for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
  } else if (element instanceof HTMLElement && PROPERTIES.has(name)) Reflect.set(element, name, value);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Set several attributes of an element.
 *
 * @param {Element} element
 * @param {Record<string, string | number>} attributes
 */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
}

/**
 * The options of a select.
 *
 * @param {Record<string, string>} texts Text of each value.
 */
export function options(texts) {
  return Object.entries(texts).map(([value, text]) => el("option", { value }, text));
}

/**
 * An element of index.html.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element with the id ${id}`);
  return element;
}

/**
 * The position of a pointer in the coordinates of an SVG element.
 *
 * @param {SVGSVGElement} element
 * @param {MouseEvent} event
 * @returns {[number, number]}
 */
export function pointerPosition(element, event) {
  const matrix = element.getScreenCTM();
  if (!matrix) throw new Error("the element is not on the page");
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  return [x, y];
}

/** Whether a key event has a modifier that belongs to the browser. */
export const hasModifier = (/** @type {KeyboardEvent} */ event) => event.ctrlKey || event.altKey || event.metaKey;
