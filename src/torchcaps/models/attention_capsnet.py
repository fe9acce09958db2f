"""The capsule network of Tsai et al. 2020, 'Capsules with inverted dot-product attention routing'.

The paper's network for CIFAR has a ResNet stem, 32 primary types, two convolutional capsule layers of 32 types and
class capsules, all with 4x4 poses. It has 1,828,816 parameters for images of (3, 32, 32) in ten classes; the paper
reports 1.83 M. The linear layer that reads the class scores has no bias here: a bias shared by all classes does not
change the softmax.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal, cast, get_args

from torch import Tensor, nn

from torchcaps.errors import ConfigError
from torchcaps.models._base import Grid, ImageShape, RoutedModel, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import residual_layers
from torchcaps.nn import AttentionRouting, CapsConv2d, Router, RoutingSpec, make_router
from torchcaps.types import Capsules, Trace

Schedule = Literal["concurrent", "sequential"]
MIN_SIZE = 13


class UpdatedConv(CapsConv2d):
    """Convolutional capsule layer of which each call is one routing iteration that starts from given parents.

    Its router is attention. Arguments are those of `nn.CapsConv2d`.

    Shape:
        children [B, H, W, in_caps, 16], parents [B, H', W', out_caps, 16]; returns the updated parents. Without
        parents it is the first iteration, with uniform coupling.
    """

    # For `diagnostics.hooks`: the calls of a forward pass are the iterations of one routing.
    stepwise = True

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, children: Capsules, parents: Capsules | None = None
    ) -> Capsules:
        router = cast(AttentionRouting, self.routing)
        return router.update(children, self.weight, parents, window=self.window(children))

    def trace(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        children: Capsules,
        parents: Capsules | None = None,
        *,
        coupling: Literal["routed", "uniform"] = "routed",
    ) -> Trace:
        """Record the iteration of such a call; each position counts as a sample, [1, B*H'*W', ...].

        Args:
            children: The children, a grid.
            parents: Parents of the iteration before; None before the first.
            coupling: `routed`, or `uniform` as a control.

        Returns:
            The trace of one iteration.
        """
        start = None if parents is None else parents.poses.flatten(0, 2)  # [B*H'*W', J, D]
        window = self.window(children)
        return self.routing.trace_conv(children, self.weight, window, iters=1, coupling=coupling, parents=start)


class AttentionCapsNet(RoutedModel):
    """Capsule network of Tsai et al. 2020: a ResNet stem, capsule layers routed by attention, a linear classifier.

    With the schedule "concurrent" all layers are routed together: after a first pass with uniform coupling, every
    layer is updated from the previous state of the layer below and of itself. With "sequential" a layer completes its
    routing before the next one begins, which works with any router. Activations are the softmax over classes of one
    linear function of the class poses.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        width: Channels of the stem; twice as many at half the resolution.
        blocks: Number of residual blocks at full and at half the resolution.
        caps: Capsule types of each layer.
        routing: Router, its name, or a mapping with its name and options. Default: attention with two iterations.
        schedule: "concurrent" or "sequential". Default: "concurrent" for attention, "sequential" for other routers.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Raises:
        ShapeError: If images are smaller than 13x13.
        ConfigError: If the schedule is unknown, or concurrent with a router other than attention.

    Example:
        >>> import torch
        >>> model = AttentionCapsNet((3, 16, 16), 10, width=8, blocks=(1, 1), caps=4)
        >>> model(torch.rand(2, 3, 16, 16)).poses.shape
        torch.Size([2, 10, 16])
    """

    default_loss = "likelihood"
    head: CapsConv2d

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        width: int = 64,
        blocks: tuple[int, int] = (3, 4),
        caps: int = 32,
        routing: RoutingSpec | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        router = AttentionRouting(iters=2) if routing is None else make_router(routing)
        self.schedule = _choose_schedule(schedule, router)
        check_min_size(image_shape, MIN_SIZE)
        self.stem = nn.Sequential(*residual_layers(image_shape[0], width, blocks))
        self.primary = nn.Conv2d(2 * width, caps * 16, 1, bias=False)
        self.norm = nn.LayerNorm(16)
        layer = UpdatedConv if self.schedule == "concurrent" else CapsConv2d
        self.lower = layer(caps, caps, 3, 2, routing=copy.deepcopy(router), competition="local")
        self.upper = layer(caps, caps, 3, 1, routing=copy.deepcopy(router), competition="local")
        rows, columns = map(len, self.grid())
        self.head = layer(caps, num_classes, (rows, columns), routing=router, competition="local")
        self.read = nn.Linear(16, 1, bias=False)

    def primary_capsules(self, images: Tensor) -> Capsules:
        """Return the primary capsules, with activation 1.

        Args:
            images: A batch of images.

        Shape:
            images: [B, C, H, W]; returns poses [B, H', W', caps, 16].

        Returns:
            A grid of capsules.
        """
        self.check_images(images)
        poses = self.primary(self.stem(images)).permute(0, 2, 3, 1).unflatten(-1, (-1, 16))  # [B, H, W, caps, 16]
        return Capsules(self.norm(poses), poses.new_ones(poses.shape[:4]))

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules below the classes after the last iteration, a grid [B, H, W, caps, 16]."""
        return self._head_inputs(images)[-1][0]

    def forward(self, images: Tensor) -> Capsules:
        poses = self.head(*self._head_inputs(images)[-1]).flatten().poses  # [B, J, 16]
        return Capsules(poses, self.activations(poses))

    def activations(self, poses: Tensor) -> Tensor:
        """Return the probability of each class.

        Args:
            poses: The class poses.

        Shape:
            poses: [..., J, 16]; returns [..., J].

        Returns:
            The probabilities.
        """
        return self.read(poses).squeeze(-1).softmax(dim=-1)

    def trace(self, images: Tensor) -> Trace:
        trace = Trace.join([self.head.trace(*inputs) for inputs in self._head_inputs(images)])
        return replace(trace, activations=self.activations(trace.poses))

    def grid(self) -> Grid:
        """Return the positions of the capsules below the classes, which divide the image evenly."""
        # Half the image, then a 3x3 kernel of stride 2 and one of stride 1.
        return Grid.even(*(((side + 1) // 2 - 3) // 2 - 1 for side in self.image_shape[1:]))

    def _head_inputs(self, images: Tensor) -> list[tuple[Capsules, ...]]:
        """Return the arguments of the class layer in each call: the children, then the classes of the call before.

        A sequential network calls it once, a concurrent one once per iteration.
        """
        primary = self.primary_capsules(images)
        lower = self.lower(primary)
        upper = self.upper(lower)
        calls: list[tuple[Capsules, ...]] = [(upper,)]
        if self.schedule == "sequential":
            return calls
        iters = cast(AttentionRouting, self.head.routing).iters
        for iteration in range(1, iters):
            calls.append((upper, self.head(*calls[-1])))
            # An update after the last but one iteration would not reach the classes.
            if iteration < iters - 1:
                lower, upper = self.lower(primary, lower), self.upper(lower, upper)
        return calls


def _choose_schedule(schedule: Schedule | None, router: Router) -> Schedule:
    able = isinstance(router, AttentionRouting)
    if schedule is None:
        return "concurrent" if able else "sequential"
    if schedule not in get_args(Schedule):
        raise ConfigError(f"schedule: expected one of {', '.join(get_args(Schedule))}, got '{schedule}'")
    if schedule == "concurrent" and not able:
        raise ConfigError(
            f"schedule: expected 'sequential' with {type(router).__name__}, got 'concurrent' (only attention can be "
            "routed one iteration at a time)"
        )
    return schedule


@register_model("attention_capsnet")
def attention_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec | None = None,
    schedule: Schedule | None = None,
) -> AttentionCapsNet:
    """The paper's network for CIFAR: ResNet stem, capsule layers of 32 types, concurrent attention.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options. Default: attention.
        schedule: `concurrent` or `sequential`. Default: concurrent for attention, sequential for other routers.

    Returns:
        The model.
    """
    return AttentionCapsNet(image_shape, num_classes, routing=routing, schedule=schedule)


@register_model("attention_capsnet_small")
def attention_capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec | None = None,
    schedule: Schedule | None = None,
) -> AttentionCapsNet:
    """Attention routing for two cores: a stem of 16 and 32 channels, capsule layers of 8 types, concurrent.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options. Default: attention.
        schedule: `concurrent` or `sequential`. Default: concurrent for attention, sequential for other routers.

    Returns:
        The model.
    """
    return AttentionCapsNet(
        image_shape, num_classes, width=16, blocks=(1, 1), caps=8, routing=routing, schedule=schedule
    )
