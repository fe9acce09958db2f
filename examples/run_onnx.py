"""Classify images with an exported network, using onnxruntime, numpy and Pillow alone: no torch, no torchcaps.

Usage: python run_onnx.py net.onnx image.png ...   (make net.onnx with `torchcaps export RUN --out net.onnx`)
Without arguments it exports the bundled MNIST network first and classifies two drawn digits.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw


def read(file, channels, height, width):
    """Read an image as [C, H, W] from 0 to 1."""
    image = Image.open(file).convert("L" if channels == 1 else "RGB").resize((width, height))
    return np.asarray(image, dtype=np.float32).reshape(height, width, channels).transpose(2, 0, 1) / 255


def classify(network, files):
    session = onnxruntime.InferenceSession(network)
    about = json.loads(session.get_modelmeta().custom_metadata_map["torchcaps"])
    images = np.stack([read(file, *about["image_shape"]) for file in files])  # [B, C, H, W]
    probabilities = np.asarray(session.run(["probabilities"], {"images": images})[0])  # [B, J]
    print(f"{network}: {about['model']}, images {about['image_shape']}, {len(about['class_names'])} classes")
    for file, row in zip(files, probabilities, strict=True):
        best = int(row.argmax())
        print(f"{file}: {about['class_names'][best]} ({row[best]:.1%})")


def prepare():
    """Export a bundled network and draw a one and a zero."""
    import torchcaps as tc

    tc.export(tc.create_model("cnn_small", pretrained="mnist"), "mnist.onnx")
    for name, draw in (("one", "line"), ("zero", "ellipse")):
        image = Image.new("L", (28, 28))
        box = (14, 5, 14, 22) if name == "one" else (8, 5, 19, 22)
        getattr(ImageDraw.Draw(image), draw)(box, width=3, **({"fill": 255} if draw == "line" else {"outline": 255}))
        image.save(f"{name}.png")
    return Path("mnist.onnx"), ["one.png", "zero.png"]


if len(sys.argv) > 2:
    classify(Path(sys.argv[1]), sys.argv[2:])
else:
    classify(*prepare())
