import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz import image_grid
from torchcaps.viz.image_grid import GAP


def shown(figure):
    pixels = figure.axes[0].images[0].get_array()
    assert pixels is not None
    return pixels


def test_row_per_class_in_order():
    labels = torch.tensor([2, 0, 2, 0, 2])
    images = torch.arange(5, dtype=torch.uint8).mul(50).view(5, 1, 1, 1).expand(5, 1, 4, 6)
    figure = image_grid(images, labels, ["a", "b", "c"], columns=2)
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["a", "b", "c"]
    canvas = shown(figure)
    assert canvas.shape == (3 * 4 + 2 * GAP, 2 * 6 + GAP, 3)

    def value(row, column):
        return round(float(canvas[row * (4 + GAP), column * (6 + GAP), 0]) * 255)

    # The first images of each class; a class without any is white.
    assert [value(0, 0), value(0, 1)] == [50, 150]
    assert [value(1, 0), value(1, 1)] == [255, 255]
    assert [value(2, 0), value(2, 1)] == [0, 100]


def test_floats_are_not_scaled():
    canvas = shown(image_grid(torch.full((2, 3, 4, 4), 0.5), torch.tensor([0, 1]), ["a", "b"]))
    assert float(canvas[0, 0, 0]) == 0.5


def test_too_many_classes_are_noted():
    figure = image_grid(torch.zeros(3, 1, 4, 4), torch.tensor([0, 1, 99]), [str(k) for k in range(100)])
    assert figure.axes[0].get_title(loc="left") == "the first 50 of 100 classes"
    assert len(figure.axes[0].get_yticklabels()) == 50


def test_first_classes_without_images():
    figure = image_grid(torch.zeros(1, 1, 4, 4), torch.tensor([99]), [str(k) for k in range(100)])
    assert float(shown(figure).min()) == 1


def test_errors_name_the_argument():
    with raises_about(ShapeError, "labels", "(3,)"):
        image_grid(torch.zeros(2, 1, 4, 4), torch.zeros(3), ["a"])
    with raises_about(ShapeError, "images"):
        image_grid(torch.zeros(2, 4, 4), torch.zeros(2), ["a"])
    with raises_about(ShapeError, "images", "got 0"):
        image_grid(torch.zeros(0, 1, 4, 4), torch.zeros(0), ["a"])
