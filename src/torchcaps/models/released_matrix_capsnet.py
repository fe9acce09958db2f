"""The matrix capsule network of the authors' released program, for comparison with that program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError
from torchcaps.models._base import ImageShape
from torchcaps.models._create import register_model
from torchcaps.models._released_variables import check_variables, layouts
from torchcaps.models.matrix_capsnet import CONVS, MatrixCapsNet
from torchcaps.nn import EMRouting, PrimaryMatrixCaps2d
from torchcaps.ops import receptive_centres

# Standard deviations of the normal distributions, cut at two deviations, that the program draws its weights from.
CONV_STD, POSE_STD, ACTIVATION_STD, CAPS_STD, FAST_CAPS_STD, CLASS_STD = 0.05, 0.5, 3.0, 0.3, 0.1, 0.01


class ReleasedMatrixCapsNet(MatrixCapsNet):
    """The network of Hinton et al. 2018 as the authors' released program builds it.

    With the same weights its class activations and gradients are those of the program, to rounding. It differs from
    `MatrixCapsNet` in its routing (`EMRouting.released`), in its initial values (matrices about zero; primary capsules
    without biases and with sigmoid(logit - 1); a bias of 0.1 in the convolution) and in its coordinates: (pixel - 16) /
    100 for a 32x32 image, the column added to the first entry of a vote and the row to the second. The default variant
    groups the positions of its layer of stride 2 by mistake, as the program does. The fast variant needs as many types
    of children as of parents in the program; here it does not. The program's loss is `SpreadLoss(growth="released",
    mean_over_classes=True)`, and beside it the sum of the squares of all weights but the biases, times 1e-7.

    `load_variables` takes weights under the names and in the layouts of the program, and `variables` returns weights or
    gradients so. With K = 3, A, B, C, D the widths and J classes:

    | variable of the program | shape | parameter here |
    |---|---|---|
    | `conv1/weights` | [5, 5, channels, A] | `stem.1.weight` |
    | `conv1/biases` | [A] | `stem.1.bias` |
    | `conv_capsule1/weights` | [1, 1, A, 16 B] | `primary.poses.weight` |
    | `conv_capsule1/conv_capsule1_act/weights` | [1, 1, A, B] | `primary.activations.weight` |
    | `convCaps0/weights` | [B, K, K, 4, 4 C], its last index is column * C + type | `lower.weight` |
    | `convCaps1/weights` | [C, K, K, 4, 4 D] | `upper.weight` |
    | `capsule2/weights` | [D, 4, 4 J] | `head.weight` |
    | `convCaps0/sigma_biases` | [1, 1, C, 1, 1, 1, 1, 1] | `lower.routing.sigma_biases` |
    | `convCaps0/activation_biases` | [1, 1, C, 1, 1, 1, 1, 1] | `lower.routing.activation_biases` |
    | `convCaps1/sigma_biases` | [1, 1, D, 1, 1, 1, 1, 1] | `upper.routing.sigma_biases` |
    | `convCaps1/activation_biases` | [1, 1, D, 1, 1, 1, 1, 1] | `upper.routing.activation_biases` |
    | `capsule2/sigma_biases` | [1, 1, J, 1, 1, 1] | `head.routing.sigma_biases` |
    | `capsule2/activation_biases` | [1, 1, J, 1, 1, 1] | `head.routing.activation_biases` |

    Args:
        image_shape: Channels, height and width.
        num_classes: Number of classes.
        widths: Channels of the convolution, then capsule types of the three layers.
        iters: Number of routing iterations in every layer.
        fast: The fast variant of the program.
        standardize: Give every image mean 0 and deviation 1 first. The program does so where it reads images; False
            takes images as they are.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Example:
        >>> model = ReleasedMatrixCapsNet((2, 32, 32), 5, widths=(8, 4, 4, 4), iters=2)
        >>> model(torch.rand(1, 2, 32, 32)).activations.shape
        torch.Size([1, 5])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        widths: Sequence[int] = (32, 32, 32, 32),
        iters: int = 3,
        fast: bool = False,
        standardize: bool = True,
    ) -> None:
        channels, primary, lower, upper = widths
        super().__init__(
            image_shape,
            num_classes,
            widths=(channels, primary, lower, upper),
            routing=EMRouting.released(iters, fast=fast),
            class_routing=EMRouting.released(iters, layer="class"),
            competition="global" if fast else "positions",
        )
        self.fast = fast
        if not standardize:
            self.stem[0] = nn.Identity()
        self.primary = PrimaryMatrixCaps2d(channels, primary, 16, *CONVS[1], bias=False, activation_offset=-1.0)
        self.head.offset_values = _offsets(image_shape)
        self._draw_weights()

    def reset_parameters(self) -> None:
        """Give all weights new initial values, drawn as the program does."""
        super().reset_parameters()
        self._draw_weights()

    def variables(self, *, gradients: bool = False) -> dict[str, Tensor]:
        """Return copies of all weights under the names and in the layouts of the program.

        Args:
            gradients: Return the gradients of the last backward pass instead of the weights.

        Returns:
            A tensor for each variable of the program.

        Raises:
            ConfigError: If there are no gradients.
        """
        parameters = dict(self.named_parameters())
        found: dict[str, Tensor] = {}
        for name, layout in layouts(self).items():
            value = parameters[layout.parameter]
            chosen = value.grad if gradients else value.detach()
            if chosen is None:
                raise ConfigError(f"gradients: expected False before a backward pass, got True ('{name}' has none)")
            found[name] = layout.export(chosen).clone()
        return found

    @torch.no_grad()
    def load_variables(self, variables: Mapping[str, Any]) -> None:
        """Copy weights under the names and in the layouts of the program into the network.

        Args:
            variables: An array or a tensor for each variable of the program.

        Raises:
            ConfigError: If a variable is missing, unknown or not finite.
            ShapeError: If a variable has another shape.
        """
        parameters = dict(self.named_parameters())
        known = layouts(self)
        tensors = check_variables(variables, {name: layout.shape for name, layout in known.items()})
        for name, layout in known.items():
            parameter = parameters[layout.parameter]
            parameter.copy_(layout.load(tensors[name], parameter))

    @torch.no_grad()
    def _draw_weights(self) -> None:
        caps = FAST_CAPS_STD if self.fast else CAPS_STD
        conv = self.stem[1]
        assert isinstance(conv, nn.Conv2d)
        assert conv.bias is not None
        nn.init.constant_(conv.bias, 0.1)
        for weight, std in (
            (conv.weight, CONV_STD),
            (self.primary.poses.weight, POSE_STD),
            (self.primary.activations.weight, ACTIVATION_STD),
            (self.lower.weight, caps),
            (self.upper.weight, caps),
            (self.head.weight, CLASS_STD),
        ):
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def _offsets(image_shape: ImageShape) -> list[list[float]]:
    """Return what coordinate addition adds to the votes from each place, H*W pairs.

    The program averages a grid of (row, column) over every kernel and exchanges the two each time. There are three
    kernels larger than one pixel, so that columns come first in the end.
    """
    rows, columns = (
        [(centre * size - 0.5 - (size + 1) // 2) / 100 for centre in receptive_centres(size, CONVS)]
        for size in image_shape[1:]
    )
    return [[column, row] for row in rows for column in columns]


@register_model("matrix_capsnet_released")
def matrix_capsnet_released(
    image_shape: ImageShape,
    num_classes: int,
    *,
    widths: Sequence[int] = (32, 32, 32, 32),
    iters: int = 3,
    fast: bool = False,
    standardize: bool = True,
) -> ReleasedMatrixCapsNet:
    """The matrix capsule network of the authors' released program, for comparison with it; without a fast kernel.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        widths: Channels of the convolution, then capsule types of the three layers.
        iters: Number of iterations.
        fast: The fast variant of the program.
        standardize: Give every image mean 0 and deviation 1 first.

    Returns:
        The model.
    """
    return ReleasedMatrixCapsNet(
        image_shape, num_classes, widths=widths, iters=iters, fast=fast, standardize=standardize
    )
