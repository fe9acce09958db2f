"""The registry of models, and the functions that make a model by name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from torchcaps._registry import Registry, check_options
from torchcaps.models._base import ImageModel, ImageShape, check_sizes
from torchcaps.models._weights import load_matching, load_weights
from torchcaps.models.pretrained import card_for

ModelFactory = Callable[..., ImageModel]
MODELS: Registry[ModelFactory] = Registry("model")


def register_model(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Register a model factory under a name. Use it as a decorator.

    Args:
        name: New name of the model.

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
    return MODELS.register(name)


def list_models(pattern: str = "*") -> list[str]:
    """Return the names of the registered models.

    Args:
        pattern: Shell pattern that the names must match.

    Returns:
        The names in alphabetical order.

    Example:
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
    """Create a model by name.

    Args:
        name: Registered name of the model, see `list_models`.
        image_shape: Channels, height and width of the images. Default: (1, 28, 28).
        num_classes: Number of classes. Default: 10.
        pretrained: Name of bundled weights (see `list_pretrained`), or of the data set that bundled weights of this
            model were trained on. The model is then in evaluation mode, with the sizes and options of the weights. With
            another `num_classes`, what depends on the classes (head and decoder) starts with new weights, and a warning
            says so.
        **options: Keyword arguments of the model's factory.

    Returns:
        The model, with new weights unless `pretrained` is given.

    Raises:
        UnknownNameError: If the model or the weights are unknown.
        ConfigError: If an option is unknown, or contradicts the pretrained weights.
        ShapeError: If the model cannot process images of this shape.

    Example:
        >>> create_model("capsnet_small", image_shape=(3, 32, 32), num_classes=5).num_classes
        5
    """
    factory = MODELS[name]
    parameters = inspect.signature(factory).parameters
    defaults = {key: option.default for key, option in parameters.items() if key not in ("image_shape", "num_classes")}
    check_options(options, defaults, f"model '{name}'")
    if pretrained is not None:
        card = card_for(name, pretrained)
        card.check(name, image_shape, options, defaults)
        classes = card.num_classes if num_classes is None else num_classes
        check_sizes(card.image_shape, classes)
        model = factory(card.image_shape, classes, **card.options)
        if classes == card.num_classes:
            return load_weights(model, card.weights).eval()
        new = load_matching(model, card.weights, skip="decoder.")
        warnings.warn(
            f"pretrained '{card.name}': {classes} classes instead of {card.num_classes}; "
            f"new weights for {', '.join(new)}",
            stacklevel=2,
        )
        return model.eval()
    image_shape = (1, 28, 28) if image_shape is None else image_shape
    num_classes = 10 if num_classes is None else num_classes
    # Before the factory computes with the sizes, so that the message names the argument.
    check_sizes(image_shape, num_classes)
    return factory(image_shape, num_classes, **options)
