import json
from dataclasses import replace

import numpy as np
import torch

from torchcaps.data import ImageData, describe, load_data


def test_counts_sizes_and_values():
    images = np.zeros((3, 2, 2), np.uint8)
    images[0, 0, 0] = 12
    summary = describe(ImageData.from_arrays(images, [0, 2, 2], class_names=["a", "b", "c"]))
    assert summary["images"] == 3
    assert summary["image_shape"] == [1, 2, 2]
    assert summary["classes"] == {"a": 1, "b": 0, "c": 2}
    assert summary["pixels"] == {"min": 0, "max": 12, "mean": 1.0}


def test_meta_values():
    data = load_data("digits", "val").subset([0, 1, 2])
    seen = replace(data, meta={"view": torch.tensor([3, 1, 3])})
    assert describe(seen)["meta"] == {"view": [1, 3]}


def test_is_ready_for_json_and_for_nothing_at_all():
    data = load_data("digits", "val")
    assert json.loads(json.dumps(describe(data))) == describe(data)
    assert describe(data.subset([]))["pixels"] == {"min": 0, "max": 0, "mean": 0.0}
