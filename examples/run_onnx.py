"""Classify images with an exported network, using onnxruntime and numpy alone: no torch, no torchcaps, no Pillow.

Usage: python run_onnx.py net.onnx images.npy ...   (make net.onnx with `torchcaps export RUN --out net.onnx`)
An array holds one image, [H, W] or [C, H, W], or several, [B, C, H, W]: bytes, or numbers from 0 to 1.
"""

import json
import sys

import numpy as np
import onnxruntime


def read(file, shape):
    """Read an array as images [B, C, H, W] of float32 from 0 to 1."""
    images = np.load(file)
    if images.dtype == np.uint8:
        images = images / 255
    if images.shape[-2:] != shape[-2:] or images.size % np.prod(shape):
        sys.exit(f"{file}: expected images of {shape}, got {images.shape}")
    return images.astype(np.float32).reshape(-1, *shape)


def classify(network, files):
    session = onnxruntime.InferenceSession(network)
    about = json.loads(session.get_modelmeta().custom_metadata_map["torchcaps"])
    print(f"{network}: {about['model']}, images {about['image_shape']}, {len(about['class_names'])} classes")
    for file in files:
        images = read(file, tuple(about["image_shape"]))  # [B, C, H, W]
        (probabilities,) = session.run(["probabilities"], {"images": images})  # [B, J]
        for number, row in enumerate(np.asarray(probabilities)):
            print(f"{file}, image {number}: {about['class_names'][row.argmax()]} ({row.max():.1%})")


if len(sys.argv) < 3:
    sys.exit(__doc__)
classify(sys.argv[1], sys.argv[2:])
