import numpy as np
import pytest
import torch
from PIL import Image

from formats import pixels
from raising import raises_about
from torchcaps.data import InMemoryDataset
from torchcaps.errors import DataError, ShapeError


class ClassLabel:
    names = ("cat", "dog")


class HubDataset:
    """Has the rows, column names and features of datasets.Dataset."""

    def __init__(self, rows, features=None):
        self.rows, self.column_names, self.features = rows, list(rows[0]) if rows else [], features

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


def rows(images, **more):
    return [{"image": image, "label": place % 2, **more} for place, image in enumerate(images)]


def test_pillow_images_and_class_names():
    colour = pixels(4, 5, 6, 3)
    data = InMemoryDataset.from_hub(
        HubDataset(rows(map(Image.fromarray, colour)), {"label": ClassLabel()}), name="pets", split="test"
    )
    assert torch.equal(data.images, torch.from_numpy(colour.transpose(0, 3, 1, 2)))
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert (data.class_names, data.name, data.split) == (("cat", "dog"), "pets", "test")
    assert data.origin == "Hugging Face data set"


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
def test_grey_images(images):
    data = InMemoryDataset.from_hub(HubDataset(rows(images)))
    assert torch.equal(data.images, torch.from_numpy(pixels(3, 1, 5, 6)))
    assert data.class_names == ("0", "1")


def test_one_colour_image():
    grey, colour = pixels(5, 6), pixels(5, 6, 3)
    data = InMemoryDataset.from_hub(HubDataset(rows([grey, colour])))
    assert data.image_shape == (3, 5, 6)
    assert (data.images[0] == torch.from_numpy(grey)).all()


def test_other_columns():
    data = InMemoryDataset.from_hub([{"img": pixels(2, 2), "fine": 1}], image="img", label="fine")
    assert data.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("dataset", "error", "names"),
    [
        ({"train": [], "test": []}, DataError, ("got 2", "train, test")),
        (HubDataset([{"picture": 1, "label": 0}]), DataError, ("'image'", "got picture, label")),
        (HubDataset([{"image": 1, "y": 0}]), DataError, ("'label'", "got image, y")),
        (HubDataset([]), DataError, ("row", "got 0")),
        (
            HubDataset(rows([pixels(2, 2), pixels(2, 3)])),
            ShapeError,
            ("2x2", "got 2x3 at row 1"),
        ),
        (HubDataset(rows([pixels(2, 2) * 1.0])), DataError, ("got float64 (2, 2) at row 0",)),
        (HubDataset(rows([[[256]]])), DataError, ("got int64 (1, 1) at row 0",)),
        (HubDataset(rows([pixels(2, 2, 5)])), DataError, ("got uint8 (2, 2, 5) at row 0",)),
        ([{"image": pixels(2, 2), "label": "cat"}], DataError, ("'label'", "<U3")),
    ],
)
def test_mistakes(dataset, error, names):
    with raises_about(error, "dataset", *names):
        InMemoryDataset.from_hub(dataset)


def test_datasets_library():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    colour = pixels(4, 5, 6, 3)
    table = {"image": [Image.fromarray(image) for image in colour], "label": [0, 1, 0, 1]}
    data = InMemoryDataset.from_hub(datasets.Dataset.from_dict(table, features=features))
    assert np.array_equal(data.images.numpy(), colour.transpose(0, 3, 1, 2))
    assert data.class_names == ("cat", "dog")
