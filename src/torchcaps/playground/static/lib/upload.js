// @ts-check
/** An image of the user: opened, dropped or pasted. It stays in the page, and no link contains it. */
import { context2d } from "./images.js";
import { showStatus } from "./status.js";

/** Longest side that is sent; the server scales further. */
const MAX_SIDE = 224;

/** @type {Api.ColourBitmap | null} */
let upload = null;

export const currentUpload = () => upload;

/**
 * Read an image file in the browser.
 *
 * @param {Blob} file
 * @returns {Promise<boolean>} Whether it is an image.
 */
export async function openUpload(file) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap || !bitmap.width || !bitmap.height) {
    showStatus("This file is not an image that the browser can read.");
    return false;
  }
  const factor = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * factor)));
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = context2d(canvas, { willReadFrequently: true });
  // Transparent pixels become white.
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  upload = { width, height, pixels: btoa(colourBytes(context, width, height)) };
  return true;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 */
function colourBytes(context, width, height) {
  const { data } = context.getImageData(0, 0, width, height);
  let bytes = "";
  for (let n = 0; n < data.length; n += 4) bytes += String.fromCharCode(data[n], data[n + 1], data[n + 2]);
  return bytes;
}

/**
 * Accept images that are dropped or pasted anywhere on the page.
 *
 * @param {() => void} onUpload
 */
export function acceptUploads(onUpload) {
  const accept = async (/** @type {DataTransfer | null} */ data) => {
    const file = [...(data?.files ?? [])].find(({ type }) => type.startsWith("image/"));
    if (file && (await openUpload(file))) onUpload();
  };
  const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.documentElement.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.documentElement.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    document.documentElement.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    accept(event.dataTransfer);
  });
  addEventListener("paste", (event) => accept(event.clipboardData));
}
