import json

import numpy as np
import torch

from torchcaps.data import InMemoryDataset, describe, load_data


def test_counts():
    images = np.zeros((3, 2, 2), np.uint8)
    images[0, 0, 0] = 12
    summary = describe(InMemoryDataset.from_arrays(images, [0, 2, 2], class_names=["a", "b", "c"]))
    assert summary["images"] == 3
    assert summary["image_shape"] == [1, 2, 2]
    assert summary["classes"] == {"a": 1, "b": 0, "c": 2}
    assert summary["pixels"] == {"min": 0, "max": 12, "mean": 1.0}


def test_meta_values():
    images, labels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    data = InMemoryDataset("made", "val", images, labels, ("a",), "here", {"view": torch.tensor([3, 1, 3])})
    assert describe(data)["meta"] == {"view": [1, 3]}


def test_json_and_empty():
    data = load_data("digits", "val")
    assert json.loads(json.dumps(describe(data))) == describe(data)
    assert describe(data.subset([]))["pixels"] == {"min": 0, "max": 0, "mean": 0.0}
