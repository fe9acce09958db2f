"""The capsule network of Hinton, Sabour and Frosst 2018, 'Matrix capsules with EM routing'."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import ConfigError
from torchcaps.models._base import Grid, ImageShape, RoutedModel, check_min_size
from torchcaps.models._create import register_model
from torchcaps.nn import (
    ClassCaps,
    InstanceStandardize,
    Router,
    RoutingSpec,
    make_router,
)
from torchcaps.nn.conv import CAPS_CONVS
from torchcaps.nn.primary_matrix import PRIMARY_MATRIX_CAPS
from torchcaps.nn.ranks import CONVS as CONV_LAYERS
from torchcaps.ops import receptive_centres
from torchcaps.ops.conv import Competition, PoseKind
from torchcaps.ops.em import inverse_temps
from torchcaps.types import Capsules

# Options of EM routing that the layers have by default; `ops/em/README.md` has the reasons.
ITERS = 2
# Factor on the inverse temperature of the class layer.
CLASS_SCALE = 4.0
# Sharpness of all E-steps but the last one, which has 1.
FIRST_SHARPNESS = 1 / 16
# Factor on the coordinates, which lie in 0 to 1: their variance is then above the floor of 0.1 of the votes' variance.
COORDINATES = 4.0
# (kernel, stride) of the convolution, the primary capsules and the two convolutional capsule layers.
CONVS = ((5, 2), (1, 1), (3, 2), (3, 1))
MIN_SIZE = 17


class MatrixCapsNet(RoutedModel):
    """Matrix capsule network of Hinton et al. 2018: a convolution, primary capsules, two capsule layers, classes.

    Poses are 4x4 matrices. If the router does not read the activations of the children, the primary poses are scaled
    by their activations.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        widths: The paper's A, B, C, D: channels of the convolution, capsule types of the three layers.
        routing: Router of all layers, its name, or a mapping with its name and options. Each layer gets a copy. Where a
            name or a mapping leaves options of EM open, these are those of `em_defaults`, unless it has
            `normalise=False`.
        class_routing: The same for the class capsules alone. Default: `routing`.
        competition: Whether the parents of all positions compete for a child, or those of each position by themselves.
        pose: "matrix" for 4x4 poses; "vector" for 16 numbers that vote through 16x16 matrices (table 1 of the paper).
        coordinates: Factor on the position of a child, rows and columns from 0 to 1, that is added to its votes for
            classes (coordinate addition); 0 for none.
        color_jitter: Options of `nn.InstanceStandardize`: random `brightness` and `contrast` in training.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Raises:
        ShapeError: If images are smaller than 17x17.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> import torch
        >>> model = MatrixCapsNet((2, 32, 32), 5, widths=(16, 4, 4, 4))
        >>> model(torch.rand(2, 2, 32, 32)).poses.shape
        torch.Size([2, 5, 16])
    """

    default_loss = "spread"
    ranks = (1, 2, 3)

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        widths: tuple[int, int, int, int],
        routing: RoutingSpec = "em",
        class_routing: RoutingSpec | None = None,
        competition: Competition = "global",
        pose: PoseKind = "matrix",
        coordinates: float = COORDINATES,
        color_jitter: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        check_min_size(image_shape, MIN_SIZE)
        channels, primary, lower, upper = widths
        if not math.isfinite(coordinates):
            raise ConfigError(f"coordinates: expected a finite number, got {coordinates}")
        rank = len(image_shape) - 1
        conv = CONV_LAYERS[rank](image_shape[0], channels, *CONVS[0])
        # The amplitude of a signal is information; its data set standardises the channels.
        before = [] if rank == 1 else [InstanceStandardize(**color_jitter or {})]
        self.stem = nn.Sequential(*before, conv, nn.ReLU())
        self.primary = PRIMARY_MATRIX_CAPS[rank](channels, primary, 16, *CONVS[1])
        kind: dict[str, Any] = {"competition": competition, "pose": pose}
        capsules = CAPS_CONVS[rank]
        self.lower = capsules(primary, lower, *CONVS[2], routing=_router(routing), **kind)
        self.upper = capsules(lower, upper, *CONVS[3], routing=_router(routing), **kind)
        places = [[coordinates * centre for centre in centres] for centres in self._centres()]
        centres = places if coordinates else None
        last = _router(routing if class_routing is None else class_routing, classes=True)
        self.head = ClassCaps(upper, num_classes, pose=pose, routing=last, centres=centres)

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules below the classes, a grid [B, H, W, D, 16]."""
        self.check_images(images)
        poses, activations = self.primary(self.stem(images))
        if not self.lower.routing.reads_activations:
            poses = poses * activations.unsqueeze(-1)  # [B, H, W, I, 16]
        return self.upper(self.lower(Capsules(poses, activations)))

    def grid(self) -> Grid | None:
        """Return the centres of the receptive fields of the capsules below the classes."""
        return Grid(*self._centres()) if len(self.image_shape) == 3 else None

    def _centres(self) -> list[tuple[float, ...]]:
        return [tuple(receptive_centres(side, CONVS)) for side in self.image_shape[1:]]


def em_defaults(iters: int = ITERS, *, classes: bool = False) -> dict[str, Any]:
    """Return the options of EM routing that the layers of a matrix network have by default.

    Every E-step but the last one has a sharpness of 1/16: deterministic annealing (Ueda and Nakano 1998). Parents start
    nearly equal, and noise would tear them apart before they have moved to their children. The inverse temperature of
    the last iteration is that of two iterations for any number of them, and four times as large in the class layer,
    whose activations start undecided.

    Args:
        iters: Number of routing iterations.
        classes: Whether the layer is the class layer.

    Returns:
        The options by name.

    Example:
        >>> em_defaults(3)["sharpness"]
        (0.0625, 1.0, 1.0)
        >>> em_defaults(classes=True)
        {'iters': 2, 'scale': 4.0, 'sharpness': (1.0, 1.0), 'beta_a_init': 'floor'}
    """
    two, last = (inverse_temps("paper", count)[-1] for count in (ITERS, iters))
    # No E-step follows the last iteration.
    sharpness = tuple(1.0 if iteration >= iters - 2 else FIRST_SHARPNESS for iteration in range(iters))
    options = {"iters": iters, "scale": two / last, "sharpness": sharpness}
    return {**options, "scale": CLASS_SCALE * two / last, "beta_a_init": "floor"} if classes else options


def _router(routing: RoutingSpec, *, classes: bool = False) -> Router:
    """Make a router of a layer's own, with the layer's options where a name or a mapping of EM leaves them open."""
    spec = {"name": routing} if isinstance(routing, str) else routing
    if isinstance(spec, Mapping) and spec.get("name") == "em" and spec.get("normalise", True):
        iters = spec.get("iters", ITERS)
        # The router refuses what is no count.
        count = iters if isinstance(iters, int) and iters > 0 else ITERS
        options = em_defaults(count, classes=classes)
        if "schedule" in spec:
            options["scale"] = CLASS_SCALE if classes else 1.0
        spec = {**options, **spec}
    return copy.deepcopy(make_router(spec))


def _register(name: str, summary: str, widths: tuple[int, int, int, int]) -> Callable[..., MatrixCapsNet]:
    """Register a variant of the network that differs in its widths."""

    def factory(
        image_shape: ImageShape,
        num_classes: int,
        *,
        routing: RoutingSpec = "em",
        class_routing: RoutingSpec | None = None,
        competition: Competition = "global",
        pose: PoseKind = "matrix",
        coordinates: float = COORDINATES,
        color_jitter: Mapping[str, float] | None = None,
    ) -> MatrixCapsNet:
        return MatrixCapsNet(
            image_shape,
            num_classes,
            widths=widths,
            routing=routing,
            class_routing=class_routing,
            competition=competition,
            pose=pose,
            coordinates=coordinates,
            color_jitter=color_jitter,
        )

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = summary
    register_model(name)(factory)
    return factory


matrix_capsnet = _register(
    "matrix_capsnet",
    "The paper's network, A = B = C = D = 32; 317,194 parameters for two channels and five classes.",
    (32, 32, 32, 32),
)
matrix_capsnet_small = _register(
    "matrix_capsnet_small",
    "The paper's small network, A = 64, B = 8, C = D = 16; 68,754 parameters for two channels and five classes.",
    (64, 8, 16, 16),
)


@register_model("matrix_capsnet_1d", rank=1)
def matrix_capsnet_1d(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec = "em",
    class_routing: RoutingSpec | None = None,
    competition: Competition = "global",
    pose: PoseKind = "matrix",
    coordinates: float = COORDINATES,
) -> MatrixCapsNet:
    """The small network of matrix capsules for signals, A = 64, B = 8, C = D = 16.

    Args:
        image_shape: Channels and length of the signals.
        num_classes: Number of classes.
        routing: As in `MatrixCapsNet`.
        class_routing: As in `MatrixCapsNet`.
        competition: As in `MatrixCapsNet`.
        pose: As in `MatrixCapsNet`.
        coordinates: As in `MatrixCapsNet`.

    Returns:
        The model.
    """
    return MatrixCapsNet(
        image_shape,
        num_classes,
        widths=(64, 8, 16, 16),
        routing=routing,
        class_routing=class_routing,
        competition=competition,
        pose=pose,
        coordinates=coordinates,
    )
