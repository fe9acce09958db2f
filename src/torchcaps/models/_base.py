"""The base class of all models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Generator, Tensor, nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, Router, mask_capsules
from torchcaps.types import Capsules, Trace

# Layers of a kind that a model may have.
MAX_DEPTH = 200
# Channels, length of a side, values of one input, and classes: far more than any network here can process. A file by
# others may name the sizes, and a model computes one number for each row and column before it has weights.
MAX_SIDE, MAX_VALUES, MAX_CLASSES = 2**20, 2**28, 2**20
# Channels, and the sides of a signal (length), an image (height, width) or a volume (depth, height, width).
ImageShape = tuple[int, ...]
SIDES = {1: "length", 2: "height, width", 3: "depth, height, width"}


class ModelSpec(NamedTuple):
    """Name and options that `create_model` made a model with.

    Args:
        name: Registered name of the model.
        options: Options of the model.
    """

    name: str
    options: Mapping[str, Any]


class Grid(NamedTuple):
    """Positions of a grid of capsules in the image.

    Args:
        rows: Centre of each row, as a fraction of the image height.
        columns: Centre of each column, as a fraction of the image width.

    Example:
        >>> Grid.even(2, 4)
        Grid(rows=(0.25, 0.75), columns=(0.125, 0.375, 0.625, 0.875))
    """

    rows: tuple[float, ...]
    columns: tuple[float, ...]

    @classmethod
    def even(cls, rows: int, columns: int) -> Grid:
        """Return a grid whose positions divide the image evenly.

        Args:
            rows: Number of rows.
            columns: Number of columns.

        Returns:
            The grid.
        """
        return cls(*(tuple((place + 0.5) / count for place in range(count)) for count in (rows, columns)))


def check_sizes(image_shape: ImageShape, num_classes: int, ranks: Sequence[int] = (2,)) -> None:
    """Raise unless `image_shape` has channels and the sides of one of some ranks, and all counts are in range."""
    if len(image_shape) - 1 not in ranks or min(image_shape) < 1:
        expected = " or ".join(f"(channels, {SIDES[rank]})" for rank in ranks)
        raise ShapeError(f"image_shape: expected {expected}, got {image_shape}")
    if max(image_shape) > MAX_SIDE or math.prod(image_shape) > MAX_VALUES:
        # The digits of a number that a file names may fill pages.
        shown = ", ".join(f"{side:,}" if side <= MAX_VALUES else f"over {MAX_VALUES:,}" for side in image_shape)
        raise ShapeError(
            f"image_shape: expected sides of at most {MAX_SIDE:,} and {MAX_VALUES:,} values in all, got ({shown})"
        )
    if not 1 <= num_classes <= MAX_CLASSES:
        raise ConfigError(f"num_classes: expected a count from 1 to {MAX_CLASSES:,}, got {num_classes}")


def check_depth(name: str, count: int, least: int = 1) -> None:
    """Raise ConfigError unless a number of layers is in range: a weights file by others may name the options.

    Args:
        name: Name of the argument.
        count: The number.
        least: Smallest number.

    Raises:
        ConfigError: If it is no whole number, smaller, or larger than `MAX_DEPTH`.
    """
    if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= MAX_DEPTH:
        raise ConfigError(f"{name}: expected a count from {least} to {MAX_DEPTH}, got {count!r}")


def check_min_size(image_shape: ImageShape, size: int) -> None:
    """Raise unless images of this shape are at least `size` pixels high and wide, or signals as long."""
    if min(image_shape[1:]) < size:
        hint = " (channels come first)" if image_shape[0] >= size else ""
        sides = " and ".join(SIDES[len(image_shape) - 1].split(", "))
        raise ShapeError(f"image_shape: expected {sides} of at least {size}, got {image_shape}{hint}")


class ImageModel(nn.Module):
    """Base class of networks that map images to class capsules.

    A model has three stages. `stem` is a module that maps images to feature maps. `features` maps images to the
    capsules below the classes. `head` is the module that maps these capsules to class capsules. A subclass sets `stem`
    and `head`, and defines `features`; `forward` is `head(features(images))`.

    A model without routing represents a class by a capsule of one dimension: the pose is the score, the activation is
    the softmax over the scores.

    Models of signals [B, C, T] and of volumes [B, C, D, H, W] have the same interface.

    Args:
        image_shape: Channels, height and width of the images; (channels, length) of signals, (channels, depth, height,
            width) of volumes.
        num_classes: Number of classes.

    Attributes:
        stem: Module from images [B, C, H, W] to feature maps.
        head: Module from `features(images)` to class capsules; the identity for a model that is not a classifier.
        decoder: Module from masked class capsules to images, or None.
        default_loss: Name of the loss that the model is trained with by default, a key of `nn.LOSSES`.
        ranks: Numbers of axes that the class accepts: 1 for signals, 2 for images, 3 for volumes.
        reads_tokens: Whether each position is a token, and the capsules of `features` are the tokens in their order;
            positions whose channels are all 0 are padding.
        is_classifier: Whether the output are class capsules. If False, the model is trained with `objective`.
        any_size: Whether a trained model accepts images of other heights and widths than `image_shape`.
        min_size: Smallest height and width that a model with `any_size` accepts.
        temperature: Temperature of the class probabilities (`nn.Scores`), stored with the weights; None if it was not
            fitted.
        freeze: Number of epochs in which `stem` is not trained.
        stem_lr: Learning rate of `stem`, or None for that of the rest.
        spec: Name and options of a model that `create_model` made; None for others.

    Shape:
        images [B, C, H, W] with values in [0, 1]; returns poses [B, J, D] and activations [B, J].

    Raises:
        ShapeError: If `image_shape` is not (channels, height, width).
        ConfigError: If `num_classes` is less than 1.

    Example:
        >>> import torch
        >>> from torchcaps.models import create_model
        >>> model = create_model("capsnet_small")
        >>> model.features(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 3, 3, 16, 8])
        >>> model(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 10, 16])
    """

    # Modules; Any lets a subclass declare the class of its own.
    stem: Any
    head: Any
    decoder: nn.Module | None
    default_loss: str = "margin"
    ranks: ClassVar[tuple[int, ...]] = (2,)
    reads_tokens: bool = False
    is_classifier: bool = True
    any_size: bool = False
    min_size: int = 1
    temperature: float | None = None
    freeze: int = 0
    stem_lr: float | None = None
    spec: ModelSpec | None = None

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__()
        check_sizes(image_shape, num_classes, self.ranks)
        self.image_shape: ImageShape = tuple(image_shape)
        self.num_classes = num_classes
        self.decoder = None

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules below the classes, in the order in which they vote.

        Args:
            images: Batch of images.

        Shape:
            images [B, C, H, W]; returns a grid, poses [B, H', W', I, P], or a set, poses [B, I, P].

        Returns:
            The input of `head`.

        Raises:
            NotImplementedError: If the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define features(images)")

    def forward(self, images: Tensor) -> Capsules:
        """Return the class capsules of a batch of images.

        Args:
            images: The images, in [0, 1].

        Shape:
            images: [B, C, H, W]; returns poses [B, J, D], activations [B, J].

        Returns:
            The class capsules.
        """
        return self.head(self.features(images))

    def reset_parameters(self) -> None:
        """Give all weights new initial values, in place; sharded weights (DTensor) too.

        Example:
            >>> import torch
            >>> from torchcaps.models import create_model
            >>> model = create_model("capsnet_small", device="meta").to_empty(device="cpu")
            >>> model.reset_parameters()
            >>> bool(model(torch.rand(1, 1, 28, 28)).activations.isfinite().all())
            True
        """
        for child in self.children():
            # Inner modules first: an outer one may set their weights in its own way.
            child.apply(_reset)

    def reset_classes(self, num_classes: int) -> list[str]:
        """Give the model another number of classes, in place.

        Weights whose size depends on the number of classes, and the decoder, get new values; all others are kept. The
        temperature is forgotten. Make optimisers after this call.

        Args:
            num_classes: New number of classes; the present one gives the classes new weights.

        Returns:
            Names of the parts of the model with new weights.

        Raises:
            ConfigError: If `num_classes` is less than 1, the model has no classes, or `create_model` did not make it.

        Example:
            >>> from torchcaps.models import create_model
            >>> model = create_model("capsnet_small")
            >>> model.reset_classes(3), model.num_classes
            (['head', 'decoder'], 3)
        """
        if not self.is_classifier:
            raise ConfigError(f"reset_classes: expected a classifier, got {type(self).__name__}")
        if self.spec is None:
            raise ConfigError(
                f"reset_classes: expected a model made by create_model, got a {type(self).__name__} "
                "(assign a new module to its head)"
            )
        check_sizes(self.image_shape, num_classes, self.ranks)
        from torchcaps.models._create import make_model

        weight = next(self.parameters())
        # What differs from a model with one more class depends on the number of classes.
        new, more = (make_model(self.spec, self.image_shape, count) for count in (num_classes, num_classes + 1))
        sizes = {name: tensor.shape for name, tensor in more.state_dict().items()}
        entries = new.to(weight).state_dict()
        kept = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if tensor.shape == entries[name].shape == sizes[name] and not name.startswith("decoder.")
        }
        new.load_state_dict(kept, strict=False)
        parts = list(dict.fromkeys(name.partition(".")[0] for name in entries if name not in kept))
        for part in parts:
            setattr(self, part, getattr(new, part).train(self.training))
        self.num_classes, self.temperature = num_classes, None
        return parts

    @property
    def class_router(self) -> Router | None:
        """Router of the class capsules, or None if the model has no routing."""
        return None

    @property
    def class_bias(self) -> Tensor | None:
        """Bias [J, D] that the routing of the class capsules adds before the squash, or None."""
        return None

    def grid(self) -> Grid | None:
        """Return where the capsules of `features` lie in an image of `image_shape`.

        Returns:
            The row and column centres, or None if `features` returns a set, or the model has no routing or no images.
        """
        return None

    def trace(self, images: Tensor) -> Trace:
        """Route into the class capsules and record every iteration.

        Args:
            images: Batch of images.

        Shape:
            images [B, C, H, W]; returns votes [B, I, J, D] and poses [R, B, J, D].

        Returns:
            The record of the routing.

        Raises:
            ConfigError: If the model has no routing.
        """
        raise ConfigError(f"trace: expected a model with routing, got {type(self).__name__}")

    def decode(self, capsules: Capsules, labels: Tensor | None = None) -> Tensor:
        """Reconstruct images from class capsules.

        Args:
            capsules: Output of the model.
            labels: Class to reconstruct, one per image. Default: the class with the largest activation.

        Shape:
            poses [B, J, D], labels [B]; returns images [B, C, H, W].

        Returns:
            The reconstructions.

        Raises:
            ConfigError: If the model has no decoder.
        """
        if self.decoder is None:
            raise ConfigError(f"decode: expected a model with a decoder, got {type(self).__name__} without one")
        return self.decoder(mask_capsules(capsules, labels))

    def objective(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Return the training loss of a model that is not a classifier.

        Args:
            images: Batch of images.
            generator: Source of the random numbers.

        Shape:
            images [B, C, H, W]; returns a scalar.

        Returns:
            The loss, mean over the batch.

        Raises:
            ConfigError: If the model is a classifier.
        """
        raise ConfigError(f"objective: expected a model that is not a classifier, got {type(self).__name__}")

    def check_images(self, images: Tensor) -> None:
        """Raise a ShapeError unless the model accepts images of this shape and type.

        Args:
            images: The images [B, C, H, W].

        Raises:
            ShapeError: If the channels or the size do not fit, or the values are not floating-point numbers.
        """
        if not images.is_floating_point():
            raise ShapeError(
                f"images: expected floating-point values in [0, 1], got {images.dtype} (see torchcaps.data.to_float)"
            )
        if self.any_size:
            channels = self.image_shape[0]
            if images.dim() != len(self.image_shape) + 1 or images.shape[1] != channels:
                raise ShapeError(f"images: expected [B, {channels}, H, W], got {tuple(images.shape)}")
            if min(images.shape[2:]) < self.min_size:
                raise ShapeError(
                    f"images: expected height and width of at least {self.min_size}, got {tuple(images.shape)}"
                )
        elif tuple(images.shape[1:]) != self.image_shape:
            raise ShapeError(
                f"images: expected [B, {', '.join(map(str, self.image_shape))}], got {tuple(images.shape)}"
            )


def _reset(module: nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()  # pyright: ignore[reportCallIssue]


class RoutedModel(ImageModel):
    """Base class of models whose `head` is a capsule layer, which routes `features` into the class capsules."""

    @property
    def class_router(self) -> Router:
        """Router of the class capsules."""
        return self.head.routing

    @property
    def class_bias(self) -> Tensor | None:
        """Bias [J, D] that the routing of the class capsules adds before the squash, or None."""
        return self.head.bias if isinstance(self.head, CapsLinear) else None

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))
