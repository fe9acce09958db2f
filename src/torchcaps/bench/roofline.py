"""How fast the Triton kernels could be: bytes and operations of every launch, and the bound that a GPU sets.

The launches are those of a training step, recorded without a GPU. Every tensor of a launch is counted once: what a
program reads again is assumed to come from the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchcaps.bench.routers import capsules
from torchcaps.nn import CapsConv2d, CapsLinear, ClassCaps
from torchcaps.types import Capsules


class Gpu(NamedTuple):
    """Peak numbers of a GPU, as NVIDIA states them.

    Args:
        name: Name of the GPU.
        flops: Operations per second in float32, without tensor cores, which the kernels do not use.
        bandwidth: Bytes per second of its memory.
    """

    name: str
    flops: float
    bandwidth: float


GPUS = (Gpu("A100", 19.5e12, 2.039e12), Gpu("H100", 66.9e12, 3.352e12))


class Estimate(NamedTuple):
    """A training step of one layer, forward and backward.

    Args:
        routing: Name of the routing.
        layer: Name of the layer.
        batch: Number of samples.
        launches: Number of kernels that are launched.
        flops: Operations.
        bytes: Bytes that cross the memory.
    """

    routing: str
    layer: str
    batch: int
    launches: int
    flops: float
    bytes: float

    def bound(self, gpu: Gpu) -> tuple[float, str]:
        """Return the seconds that a GPU needs at least, and what sets the bound: operations or bytes."""
        times = {"operations": self.flops / gpu.flops, "bytes": self.bytes / gpu.bandwidth}
        slowest = max(times, key=lambda name: times[name])
        return times[slowest], slowest


# The layers of the two papers, for images of MNIST (batch 128) and smallNORB (batch 32).
LAYERS = {
    "digit_caps": ("DigitCaps, 1152 x 8 to 10 x 16", 128),
    "conv_caps": ("ConvCaps, 32 to 32 types of 4x4 poses, 3x3, stride 2, 14x14 places", 32),
    "class_caps": ("ClassCaps, 32 types of 4x4 poses on 4x4 places to 5", 32),
}
CASES = (
    *(
        (routing, "digit_caps")
        for routing in ("dynamic", "kmeans", "attention", "self_attention", "self_routing", "em")
    ),
    *(("em", layer) for layer in ("conv_caps", "class_caps")),
    ("dynamic", "conv_caps"),
)


def make_step(
    routing: str,
    layer: str,
    batch: int,
    *,
    backend: str = "triton",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Callable[[], None]:
    """Make a training step of a layer.

    Args:
        routing: Name of a routing.
        layer: Name in `LAYERS`.
        batch: Number of samples.
        backend: Backend of the layer.
        device: Device of all tensors.
        dtype: Type of all tensors.

    Returns:
        A function that runs the step, forward and backward.
    """
    torch.manual_seed(0)
    kinds = {"device": device, "dtype": dtype}
    if layer == "digit_caps":
        module: torch.nn.Module = CapsLinear(1152, 10, 8, 16, routing=routing, backend=backend)
        children = capsules(torch.rand(batch, 1152, 8, **kinds).sub_(0.5))
    elif layer == "conv_caps":
        module = CapsConv2d(32, 32, 3, stride=2, routing=routing, backend=backend)
        children = Capsules(torch.randn(batch, 14, 14, 32, 16, **kinds), torch.rand(batch, 14, 14, 32, **kinds))
    else:
        module = ClassCaps(32, 5, routing=routing, backend=backend)
        children = Capsules(torch.randn(batch, 4, 4, 32, 16, **kinds), torch.rand(batch, 4, 4, 32, **kinds))
    module = module.to(**kinds)
    poses = children.poses.requires_grad_()
    leaves = [poses, *module.parameters()]

    def step() -> None:
        parents = module(Capsules(poses, children.activations))
        torch.autograd.grad(parents.poses.sum() + parents.activations.sum(), leaves, allow_unused=True)

    return step


def estimate(routing: str, layer: str, batch: int | None = None) -> Estimate:
    """Count the operations and bytes of a training step.

    Args:
        routing: Name of a routing.
        layer: Name in `LAYERS`.
        batch: Number of samples; by default that of `LAYERS`.

    Returns:
        The estimate.

    Example:
        >>> estimate("self_routing", "digit_caps", 2).launches  # doctest: +SKIP
        2
    """
    from torchcaps.ops._triton.compiled import record

    batch = batch or LAYERS[layer][1]
    calls = record(make_step(routing, layer, batch))
    return Estimate(
        routing, layer, batch, len(calls), sum(map(_operations, calls)), sum(_bytes(call.arguments) for call in calls)
    )


def _bytes(arguments: Sequence[Any]) -> int:
    """Return the bytes of all tensors of a launch, each counted once."""
    tensors = {value.data_ptr(): value for value in arguments if isinstance(value, torch.Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _operations(call: Any) -> float:
    """Return the operations of a launch: those of the votes and, per entry of a vote, of what is made of them."""
    named = dict(zip(call.kernel.arg_names, call.arguments, strict=True))
    entries = named["rows"] * named["children"] * named["parents"] * named["VOTE_ROWS"] * named["COLUMNS"]
    votes = 2 * named["INNER"]
    gauss, logits = named["GAUSS"], named["KEY"]
    # Distance, logit, and sums, with multiplication and addition counted as two.
    logit = (4 if logits else 1) if gauss else 2 * logits
    gain, sums = (4, 5) if gauss else (2, 2)
    if call.name == "spread":
        each = logit + gain + (9 if gauss else 4)
        return entries * (3 * votes + named["ITERS"] * each)
    each = {"sum": logit + sums, "pull": logit + gain + sums, "norm": logit, "gain": logit + gain}[call.name]
    return entries * (votes + each)
