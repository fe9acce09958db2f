"""The registry of models, and the functions that make a model by name."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from torchcaps._registry import Registry, check_options
from torchcaps.errors import ConfigError
from torchcaps.models._base import ImageModel, ImageShape, ModelSpec, check_sizes
from torchcaps.models._weights import load_weights
from torchcaps.models.pretrained import card_for
from torchcaps.nn import Router

ModelFactory = Callable[..., ImageModel]
MODELS: Registry[ModelFactory] = Registry("model")
# Models of signals and volumes by name; all others are models of images.
_RANKS: dict[str, int] = {}
DEFAULT_SHAPES: dict[int, ImageShape] = {1: (1, 128), 2: (1, 28, 28), 3: (1, 28, 28, 28)}


def register_model(name: str, *, rank: int = 2) -> Callable[[ModelFactory], ModelFactory]:
    """Register a model factory under a name. Use it as a decorator.

    Args:
        name: New name of the model.
        rank: Number of axes of its input beside the channels: 1 for signals, 2 for images, 3 for volumes.

    Returns:
        A decorator for a factory `(image_shape, num_classes, *, **options) -> ImageModel`.

    Raises:
        ConfigError: If the name is already registered.

    Example:
        >>> @register_model("doctest_net")
        ... def doctest_net(image_shape, num_classes, *, width=8):
        ...     return ImageModel(image_shape, num_classes)
        >>> create_model("doctest_net", width=4).num_classes
        10
    """
    register = MODELS.register(name)
    if rank != 2:
        _RANKS[name] = rank
    return register


def model_rank(name: str) -> int:
    """Return the number of axes of a model's input beside the channels.

    Args:
        name: Registered name of the model.

    Returns:
        1 for signals, 2 for images, 3 for volumes.

    Example:
        >>> model_rank("capsnet_1d"), model_rank("capsnet_small")
        (1, 2)
    """
    return _RANKS.get(name, 2)


def list_models(pattern: str = "*") -> list[str]:
    """Return the names of the registered models.

    Args:
        pattern: Shell pattern that the names must match.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_models("capsnet*")
        ['capsnet', 'capsnet_1d', 'capsnet_3d', 'capsnet_small']
    """
    return MODELS.names(pattern)


def create_model(
    name: str,
    image_shape: ImageShape | None = None,
    num_classes: int | None = None,
    *,
    pretrained: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> ImageModel:
    """Create a model by name.

    Args:
        name: Registered name of the model, see `list_models`.
        image_shape: Channels, height and width of the images, by default (1, 28, 28); for a model of signals (channels,
            length), by default (1, 128), for one of volumes (channels, depth, height, width).
        num_classes: Number of classes. Default: 10.
        pretrained: Name of bundled weights (see `list_pretrained`), or of the data set that bundled weights of this
            model were trained on. The model is then in evaluation mode, with the sizes and options of the weights. With
            another `num_classes`, what depends on the classes (head and decoder) starts with new weights, and a warning
            says so.
        device: Device of the weights. On "meta" they have no memory: call `to_empty` and `reset_parameters`, or
            `load_state_dict`.
        dtype: Floating-point type of the weights.
        **options: Keyword arguments of the model's factory.

    Returns:
        The model, with new weights unless `pretrained` is given.

    Raises:
        UnknownNameError: If the model or the weights are unknown.
        ConfigError: If an option is unknown, contradicts the pretrained weights, or device or type is unsuitable.
        ShapeError: If the model cannot process images of this shape.
        CheckpointError: If the weights are neither bundled nor downloaded.

    Example:
        >>> create_model("capsnet_small", image_shape=(3, 32, 32), num_classes=5).num_classes
        5
    """
    parameters = inspect.signature(MODELS[name]).parameters
    defaults = {key: option.default for key, option in parameters.items() if key not in ("image_shape", "num_classes")}
    check_options(options, defaults, f"model '{name}'")
    place = _check_place(device, dtype)
    if pretrained is not None:
        card = card_for(name, pretrained)
        card.check(name, image_shape, options, defaults)
        if place is not None and place.type == "meta":
            raise ConfigError("device: expected one with memory for pretrained weights, got 'meta'")
        # Before the weights are read, so that the message names the argument.
        check_sizes(card.image_shape, card.num_classes if num_classes is None else num_classes, [model_rank(name)])
        model = _place(ModelSpec(name, card.options), card.image_shape, card.num_classes, place, dtype)
        load_weights(model, card.require_weights()).eval()
        if num_classes not in (None, card.num_classes):
            new = model.reset_classes(num_classes)
            warnings.warn(
                f"pretrained '{card.name}': {num_classes} classes instead of {card.num_classes}; "
                f"new weights for {', '.join(new)}",
                stacklevel=2,
            )
        return model
    rank = model_rank(name)
    image_shape = DEFAULT_SHAPES[rank] if image_shape is None else image_shape
    num_classes = 10 if num_classes is None else num_classes
    # Before the factory computes with the sizes, so that the message names the argument.
    check_sizes(image_shape, num_classes, [rank])
    return _place(ModelSpec(name, options), image_shape, num_classes, place, dtype)


def make_model(spec: ModelSpec, image_shape: ImageShape, num_classes: int) -> ImageModel:
    """Make a model with new weights, which remembers its name and options.

    Args:
        spec: Name and options.
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.

    Returns:
        The model.
    """
    # A router belongs to one layer, and a second model needs another.
    own = {key: copy.deepcopy(value) if isinstance(value, Router) else value for key, value in spec.options.items()}
    model = MODELS[spec.name](image_shape, num_classes, **spec.options)
    # The weights of a trained model hold those of its backbone: the file that it started from may be gone.
    own.pop("weights", None)
    model.spec = ModelSpec(spec.name, own)
    return model


def _check_place(device: torch.device | str | None, dtype: torch.dtype | None) -> torch.device | None:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ConfigError(f"dtype: expected a floating-point type, got {dtype}")
    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device: expected a device of torch, got {device!r} ({error})") from None


def _place(
    spec: ModelSpec, image_shape: ImageShape, num_classes: int, device: torch.device | None, dtype: torch.dtype | None
) -> ImageModel:
    with nullcontext() if device is None else device:
        model = make_model(spec, image_shape, num_classes)
    # A backbone that was given as a module has a device and a type of its own.
    return model if device is None and dtype is None else model.to(device=device, dtype=dtype)
