"""The capsule network of Tsai et al. 2020, 'Capsules with inverted dot-product attention routing'.

The paper's network for CIFAR: a ResNet stem, 32 primary types, two convolutional capsule layers of 32 types and class
capsules, all with 4x4 poses. 1,828,816 parameters for images of (3, 32, 32) in ten classes; the paper says 1.83 M.
The linear layer that reads the classes has no bias here: it would be the same for all, and a softmax does not see it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.models._residual import residual_stem
from torchcaps.nn import AttentionRouting, CapsConv2d, Router, make_router
from torchcaps.nn.watch import Calls, trace_calls
from torchcaps.types import Capsules, Trace

Schedule = Literal["concurrent", "sequential"]
LEAST = 13


class UpdatedConv(CapsConv2d):
    """A layer of a network that is routed concurrently: a call is one iteration, from the parents found so far.

    children [B, H, W, in_caps, 16] and parents [B, H', W', out_caps, 16] give the parents anew; without parents it is
    the first, uniform iteration. Its router is attention.
    """

    # Who watches it (`nn.watch`) takes its calls for the iterations of one routing.
    stepwise = True

    def forward(self, children: Capsules, parents: Capsules | None = None) -> Capsules:
        router = cast(AttentionRouting, self.routing)
        return router.update(children, self.weight, parents, window=self.window(children))

    def trace(self, children: Capsules, parents: Capsules | None = None) -> Trace:
        """The one iteration of such a call; each position counts as a sample, [1, B*H'*W', ...]."""
        window = self.window(children)
        seen = window.gather(children)
        votes = self.routing.votes(seen, self.weight, window)  # [B*H'*W', K*K*I, J, D]
        start = None if parents is None else parents.poses.flatten(0, 2)  # [B*H'*W', J, D]
        inputs = self.routing.inputs(votes, seen, bias=None, window=window)
        return ops.trace(self.routing.algorithm, votes, start, **{**inputs, "iters": 1})


class AttentionCapsNet(ImageModel):
    """A ResNet stem, primary capsules, two convolutional capsule layers, and class capsules read by one linear layer.

    With the schedule `concurrent` all layers are routed together: after a first, uniform pass every layer is updated
    from what the layer below and the layer itself were before. With `sequential` a layer is routed to its end before
    the next begins, which works with any router. Without a schedule attention is routed concurrently and other routers
    sequentially; without `routing` it is attention with the paper's two iterations. Activations are the softmax over
    classes of one linear function of their poses.
    """

    loss = "likelihood"

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        width: int = 64,
        blocks: tuple[int, int] = (3, 4),
        caps: int = 32,
        routing: Router | str | Mapping[str, Any] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        router = AttentionRouting(iters=2) if routing is None else make_router(routing)
        self.schedule = _choose_schedule(schedule, router)
        if min(image_shape[1:]) < LEAST:
            raise ShapeError(f"image_shape: expected height and width of at least {LEAST}, got {image_shape}")
        self.stem = residual_stem(image_shape[0], width, blocks)
        self.primary = nn.Conv2d(2 * width, caps * 16, 1, bias=False)
        self.norm = nn.LayerNorm(16)
        layer = UpdatedConv if self.schedule == "concurrent" else CapsConv2d
        self.lower = layer(caps, caps, 3, 2, routing=copy.deepcopy(router), competition="local")
        self.upper = layer(caps, caps, 3, 1, routing=copy.deepcopy(router), competition="local")
        # Half the image, then a 3x3 kernel of stride 2 and one of stride 1; the classes see all that is left.
        rows, columns = (((side + 1) // 2 - 3) // 2 - 1 for side in image_shape[1:])
        self.head = layer(caps, num_classes, (rows, columns), routing=router, competition="local")
        self.read = nn.Linear(16, 1, bias=False)

    def features(self, images: Tensor) -> Capsules:
        """The primary capsules, a grid [B, H, W, caps, 16], all of them there."""
        self.check_images(images)
        poses = self.primary(self.stem(images)).permute(0, 2, 3, 1).unflatten(-1, (-1, 16))  # [B, H, W, caps, 16]
        return Capsules(self.norm(poses), poses.new_ones(poses.shape[:4]))

    def forward(self, images: Tensor) -> Capsules:
        primary = self.features(images)
        if self.schedule == "concurrent":
            classes = self.head(*self._concurrent(primary)[-1])  # [B, 1, 1, J, 16]
        else:
            classes = self.head(self.upper(self.lower(primary)))  # [B, 1, 1, J, 16]
        poses = classes.flatten().poses  # [B, J, 16]
        return Capsules(poses, self.activations(poses))

    def activations(self, poses: Tensor) -> Tensor:
        """How likely each class is, [..., J] from poses [..., J, 16]."""
        return self.read(poses).squeeze(-1).softmax(dim=-1)

    def trace(self, images: Tensor) -> Trace:
        primary = self.features(images)
        if self.schedule == "concurrent":
            trace = trace_calls(self.head, self._concurrent(primary))
        else:
            trace = self.head.trace(self.upper(self.lower(primary)))
        return replace(trace, activations=self.activations(trace.poses))

    def _concurrent(self, primary: Capsules) -> Calls:
        """What the class layer sees in each iteration: its children, and the classes as they were before."""
        iters = cast(AttentionRouting, self.head.routing).iters
        lower = self.lower(primary)
        upper = self.upper(lower)
        seen: Calls = [(upper,)]
        for iteration in range(1, iters):
            seen.append((upper, self.head(*seen[-1])))
            # After the last but one iteration no class would hear of it.
            if iteration < iters - 1:
                lower, upper = self.lower(primary, lower), self.upper(lower, upper)
        return seen


def _choose_schedule(schedule: Schedule | None, router: Router) -> Schedule:
    able = isinstance(router, AttentionRouting)
    if schedule is None:
        return "concurrent" if able else "sequential"
    if schedule not in get_args(Schedule):
        raise ConfigError(f"schedule: expected one of {', '.join(get_args(Schedule))}, got '{schedule}'")
    if schedule == "concurrent" and not able:
        raise ConfigError(
            f"schedule: expected 'sequential' with {type(router).__name__}, got 'concurrent' (only attention can be "
            "routed by single updates)"
        )
    return schedule


@register_model("attention_capsnet")
def attention_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Router | str | Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
) -> AttentionCapsNet:
    """The paper's network for CIFAR: ResNet stem, capsule layers of 32 types, concurrent attention."""
    return AttentionCapsNet(image_shape, num_classes, routing=routing, schedule=schedule)


@register_model("attention_capsnet_small")
def attention_capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Router | str | Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
) -> AttentionCapsNet:
    """Attention routing for two cores: a stem of 16 and 32 channels, capsule layers of 8 types, all routed together."""
    return AttentionCapsNet(
        image_shape, num_classes, width=16, blocks=(1, 1), caps=8, routing=routing, schedule=schedule
    )
