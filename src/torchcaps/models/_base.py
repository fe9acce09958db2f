"""What every model is, and the registry they are made from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Generator, Tensor, nn

from torchcaps._registry import Registry, check_options
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models._weights import load_weights
from torchcaps.models.pretrained import card_for
from torchcaps.nn import DECODERS, mask_capsules
from torchcaps.types import Capsules, Trace

ImageShape = tuple[int, int, int]


def check_sizes(image_shape: ImageShape, num_classes: int) -> None:
    """Raise unless there are images of (channels, height, width) and at least one class."""
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise ShapeError(f"image_shape: expected (channels, height, width), got {image_shape}")
    if num_classes < 1:
        raise ConfigError(f"num_classes: expected a count of at least 1, got {num_classes}")


class ImageModel(nn.Module):
    """A network from images [B, C, H, W] with values in [0, 1] to the capsules of its classes, [B, J, D].

    `loss` names the loss it is made for. `decoder` turns masked class capsules into an image, or is None. A model that
    `classifies` not has other capsules than classes, and an `objective` of its own in place of that loss. One that
    takes `any_size` sees images of other heights and widths than it was made for, down to `least`.
    """

    loss = "margin"
    classifies = True
    any_size = False
    least = 1

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__()
        check_sizes(image_shape, num_classes)
        self.image_shape: ImageShape = tuple(image_shape)  # pyright: ignore[reportAttributeAccessIssue]
        self.num_classes = num_classes
        self.decoder: nn.Module | None = None

    def decode(self, capsules: Capsules, labels: Tensor | None = None) -> Tensor:
        """Images [B, C, H, W] from the class capsules named by `labels` [B], or from the most active ones."""
        if self.decoder is None:
            raise ConfigError(f"decode: expected a model with a decoder, got {type(self).__name__} without one")
        return self.decoder(mask_capsules(capsules, labels))

    def trace(self, images: Tensor) -> Trace:
        """The routing into the class capsules with every iteration kept."""
        raise ConfigError(f"trace: expected a model with routing, got {type(self).__name__}")

    def objective(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """What a model that does not classify is trained to make small; what it draws comes from the generator."""
        raise ConfigError(f"objective: expected a model that does not classify, got {type(self).__name__}")

    def check_images(self, images: Tensor) -> None:
        """Raise unless images are [B, C, H, W] of the shape that the model was made for, or of any size it takes."""
        if self.any_size:
            channels = self.image_shape[0]
            if images.dim() != 4 or images.shape[1] != channels:
                raise ShapeError(f"images: expected [B, {channels}, H, W], got {tuple(images.shape)}")
            if min(images.shape[2:]) < self.least:
                raise ShapeError(
                    f"images: expected height and width of at least {self.least}, got {tuple(images.shape)}"
                )
        elif tuple(images.shape[1:]) != self.image_shape:
            raise ShapeError(
                f"images: expected [B, {', '.join(map(str, self.image_shape))}], got {tuple(images.shape)}"
            )


ModelFactory = Callable[..., ImageModel]
MODELS: Registry[ModelFactory] = Registry("model")


def register_model(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Make a factory `(image_shape, num_classes, **options) -> ImageModel` known under a name: a decorator."""
    return MODELS.register(name)


def list_models(pattern: str = "*") -> list[str]:
    """The names of the models that match a shell pattern.

    >>> list_models("capsnet*")
    ['capsnet', 'capsnet_small']
    """
    return MODELS.names(pattern)


def create_model(
    name: str,
    image_shape: ImageShape | None = None,
    num_classes: int | None = None,
    *,
    pretrained: str | None = None,
    **options: Any,
) -> ImageModel:
    """Make a model by name, with fresh weights; options are the keyword arguments of its factory.

    Without a word on it, it is for images of (1, 28, 28) in 10 classes. `pretrained` names weights that come with
    torchcaps (`list_pretrained`), or the data set that the model's own were trained on: the model then has their sizes
    and options, and is ready to answer.

    >>> create_model("capsnet_small", image_shape=(3, 32, 32), num_classes=5).num_classes
    5
    """
    factory = MODELS[name]
    parameters = inspect.signature(factory).parameters
    defaults = {key: option.default for key, option in parameters.items() if key not in ("image_shape", "num_classes")}
    check_options(options, defaults, f"model '{name}'")
    if pretrained is not None:
        card = card_for(name, pretrained)
        card.check(name, image_shape, num_classes, options, defaults)
        model = factory(card.image_shape, card.num_classes, **card.options)
        return load_weights(model, card.weights).eval()
    image_shape = (1, 28, 28) if image_shape is None else image_shape
    num_classes = 10 if num_classes is None else num_classes
    # Checked before the factory computes with them, so that a mistake is named rather than met half-way.
    check_sizes(image_shape, num_classes)
    return factory(image_shape, num_classes, **options)


def make_decoder(
    decoder: str | None, num_classes: int, dim: int, image_shape: ImageShape, **options: Any
) -> nn.Module | None:
    """A decoder by name; None or the word 'none' for no decoder."""
    if decoder is None or decoder == "none":
        return None
    return DECODERS[decoder](num_classes, dim, image_shape, **options)


def conv_size(size: int, kernel: int, stride: int) -> int:
    """How many positions a convolution without padding has along an axis; 0 or less when the kernel does not fit."""
    return (size - kernel) // stride + 1
