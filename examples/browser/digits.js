// Classify a drawn digit with an exported network and onnxruntime-web.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

const SIDE = 28;
const canvas = document.getElementById("drawing");
const status = document.getElementById("status");
const list = document.getElementById("classes");
const pen = canvas.getContext("2d", { willReadFrequently: true });

// One thread needs no special headers of the server.
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = new URL("./node_modules/onnxruntime-web/dist/", import.meta.url).href;
const session = await ort.InferenceSession.create("mnist.onnx", { executionProviders: ["wasm"] });

function clear() {
  pen.fillStyle = "black";
  pen.fillRect(0, 0, SIDE, SIDE);
  list.replaceChildren();
  status.value = "Ready.";
}

// Grey values of the canvas as images [1, 1, 28, 28] from 0 to 1.
function images() {
  const { data } = pen.getImageData(0, 0, SIDE, SIDE);
  return new ort.Tensor("float32", Float32Array.from({ length: SIDE * SIDE }, (_, k) => data[4 * k] / 255), [1, 1, SIDE, SIDE]);
}

async function classify() {
  const begun = performance.now();
  const { probabilities } = await session.run({ images: images() });
  const shares = Array.from(probabilities.data);
  const best = shares.indexOf(Math.max(...shares));
  const rows = shares.map((share) => {
    const row = document.createElement("li");
    const meter = document.createElement("meter");
    meter.value = share;
    row.append(meter, ` ${(100 * share).toFixed(1)} %`);
    return row;
  });
  list.replaceChildren(...rows);
  status.value = `This is a ${best} (${(performance.now() - begun).toFixed(0)} ms).`;
}

function draw(event) {
  if (event.buttons !== 1) return;
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((place) => (place / box.width) * SIDE);
  pen.strokeStyle = "white";
  pen.lineWidth = 2.5;
  pen.lineCap = pen.lineJoin = "round";
  pen.lineTo(x, y);
  pen.stroke();
}

canvas.addEventListener("pointerdown", (event) => {
  pen.beginPath();
  draw(event);
});
canvas.addEventListener("pointermove", draw);
canvas.addEventListener("pointerup", classify);
document.getElementById("clear").addEventListener("click", clear);
clear();
