import numpy as np
import pytest
import torch
from PIL import Image

from formats import pixels
from torchcaps.data import ImageData
from torchcaps.errors import DataError, ShapeError


class ClassLabel:
    names = ("cat", "dog")


class HubDataset:
    """Behaves like datasets.Dataset where it matters: rows, column names, features."""

    def __init__(self, rows, features=None):
        self.rows, self.column_names, self.features = rows, list(rows[0]) if rows else [], features

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


def rows(images, **more):
    return [{"image": image, "label": place % 2, **more} for place, image in enumerate(images)]


def test_pictures_and_class_names():
    colour = pixels(4, 5, 6, 3)
    data = ImageData.from_hub(
        HubDataset(rows(map(Image.fromarray, colour)), {"label": ClassLabel()}), name="pets", split="test"
    )
    assert torch.equal(data.images, torch.from_numpy(colour.transpose(0, 3, 1, 2)))
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert (data.class_names, data.name, data.split) == (("cat", "dog"), "pets", "test")
    assert data.origin == "a Hugging Face data set handed in"


@pytest.mark.parametrize(
    "images",
    [
        pixels(3, 5, 6),
        pixels(3, 5, 6)[..., None],
        pixels(3, 1, 5, 6),
        [image.tolist() for image in pixels(3, 5, 6)],
        [Image.fromarray(image) for image in pixels(3, 5, 6)],
    ],
)
def test_grey_images_of_any_kind(images):
    data = ImageData.from_hub(HubDataset(rows(images)))
    assert torch.equal(data.images, torch.from_numpy(pixels(3, 1, 5, 6)))
    assert data.class_names == ("0", "1")


def test_one_coloured_picture_makes_all_coloured():
    grey, colour = pixels(5, 6), pixels(5, 6, 3)
    data = ImageData.from_hub(HubDataset(rows([grey, colour])))
    assert data.image_shape == (3, 5, 6)
    assert (data.images[0] == torch.from_numpy(grey)).all()


def test_other_columns():
    data = ImageData.from_hub([{"img": pixels(2, 2), "fine": 1}], image="img", label="fine")
    assert data.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("dataset", "error", "reason"),
    [
        ({"train": [], "test": []}, DataError, r"expected one split, got 2 \(train, test\); choose one"),
        (HubDataset([{"picture": 1, "label": 0}]), DataError, "expected a column 'image', got picture, label"),
        (HubDataset([{"image": 1, "y": 0}]), DataError, "expected a column 'label', got image, y"),
        (HubDataset([]), DataError, "expected at least one row, got none"),
        (
            HubDataset(rows([pixels(2, 2), pixels(2, 3)])),
            ShapeError,
            "expected images of one size, 2x2, got 2x3 at row 1",
        ),
        (HubDataset(rows([pixels(2, 2) * 1.0])), DataError, r"got float64 \(2, 2\) at row 0"),
        (HubDataset(rows([[[256]]])), DataError, r"got int64 \(1, 1\) at row 0"),
        (HubDataset(rows([pixels(2, 2, 5)])), DataError, r"got uint8 \(2, 2, 5\) at row 0"),
        ([{"image": pixels(2, 2), "label": "cat"}], DataError, "expected class numbers in 'label', got"),
    ],
)
def test_mistakes(dataset, error, reason):
    with pytest.raises(error, match=f"dataset: .*{reason}"):
        ImageData.from_hub(dataset)


def test_the_real_library():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    colour = pixels(4, 5, 6, 3)
    table = {"image": [Image.fromarray(image) for image in colour], "label": [0, 1, 0, 1]}
    data = ImageData.from_hub(datasets.Dataset.from_dict(table, features=features))
    assert np.array_equal(data.images.numpy(), colour.transpose(0, 3, 1, 2))
    assert data.class_names == ("cat", "dog")
