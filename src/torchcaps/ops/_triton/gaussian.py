"""One pass with a Gaussian per parent over the votes in Triton, differentiable, without stored votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops import _native
from torchcaps.ops._flops import Cost
from torchcaps.ops._triton.device import check_device
from torchcaps.ops._triton.layer import Layer, sizes_of

if TYPE_CHECKING:
    from torchcaps.ops._triton.launch import Launch


class Moments(NamedTuple):
    """Sums over the children of a parent, with d the distance of a vote from the mean that was given.

    Args:
        mass: sum of the shares, [B, positions, J].
        first: sum of share d, [B, positions, J, D].
        second: sum of share d^2, [B, positions, J, D].
    """

    mass: Tensor
    first: Tensor
    second: Tensor


def moments(
    layer: Layer,
    mean: Tensor,
    density: tuple[Tensor, Tensor] | None = None,
    background: Tensor | None = None,
    *,
    local: bool = False,
) -> Moments:
    """Compute the moments of the votes about a mean, with share_ij = coupling_ij a_i.

    coupling is the softmax of level_j - sum_h sharp_jh (votes_ijh - mean_jh)^2 over the parents that compete for a
    child, and uniform without a density. First derivatives only.

    Args:
        layer: Children and weight.
        mean: Means of the Gaussians.
        density: `sharp`, half of the inverse variances times a factor, and `level`, the rest of the log density.
        background: Logit of belonging to no parent, of one element.
        local: Parents of each position compete by themselves, whatever the layer says.

    Shape:
        mean and sharp: [B, positions, J, D]; level: [B, positions, J].

    Returns:
        The moments.
    """
    offsets = None if layer.offsets is None else layer.offsets.to(layer.weight)
    sharp, level = density or (None, None)
    tensors = [layer.poses, layer.activations, layer.weight, mean, sharp, level, background, offsets]
    return Moments(*_gaussian(*tensors, layer.window, layer.across and not local)[:3])


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    mean: Tensor,
    sharp: Tensor | None,
    level: Tensor | None,
    background: Tensor | None,
    offsets: Tensor | None,
    window: list[int],
    across: bool,
) -> None:
    sizes = sizes_of(poses, weight, window)
    parents = [sizes.batch, sizes.samples_positions, sizes.parents]
    _native.check_shape("activations", activations, poses.shape[:3])
    _native.check_shape("mean", mean, [*parents, sizes.out_dim])
    _native.check_shape("sharp", sharp, [*parents, sizes.out_dim])
    _native.check_shape("level", level, parents)
    _native.check_shape("background", background, [1])
    _native.check_shape("offsets", offsets, [sizes.places, len(sizes.grid)])
    if (sharp is None) != (level is None) or (background is not None and sharp is None):
        raise ConfigError("sharp: expected together with level, and with a background, got one of them alone")


def _shapes(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> list[list[int]]:
    *_, window, across = rest
    sizes = sizes_of(poses, weight, window)
    parents = [sizes.batch, sizes.samples_positions, sizes.parents]
    norm = list(poses.shape[:3]) if across and not sizes.disjoint else [0]
    return [parents, [*parents, sizes.out_dim], [*parents, sizes.out_dim], norm]


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> Cost:
    _, sharp, *_, window, across = rest
    sizes = sizes_of(poses, weight, window)
    more = int(across and sharp is not None and not sizes.disjoint)
    return Cost(sizes.vote_flops, 1 + more, 1 + int(sharp is not None) + more)


def _launch(args: _native.Arguments, **others: Tensor | None) -> Launch:
    from torchcaps.ops._triton.launch import Launch

    poses, activations, weight, mean, sharp, level, background, offsets, window, across = args
    check_device(poses)
    sizes, dtype = sizes_of(poses, weight, window), _native.sum_dtype(args[:8])
    wide = {"mean": mean, "sharp": sharp, "level": level, "background": background}
    tensors = {name: None if tensor is None else tensor.to(dtype) for name, tensor in wide.items()}
    return Launch(
        sizes,
        poses,
        activations,
        weight,
        offsets,
        dtype,
        gauss=True,
        weighted=True,
        across=across and not sizes.disjoint,
        tensors={**tensors, **others},
    )


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    launch = _launch(args)
    if launch.across:
        launch.tensors["norm"] = outputs[3].copy_(launch.combine_norm())
    sums = launch.sum()
    for name, output in zip(("mass", "total", "square"), outputs, strict=False):
        output.copy_(sums[name].view_as(output))


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    mass, first, norm = saved
    given = {"grad_mass": grads[0], "grad": grads[1].unsqueeze(0), "grad_square": grads[2], "norm": norm}
    launch = _launch(args, **given)
    # Without a density the coupling is uniform, and nothing passes through it.
    through = launch.has_logits
    found = {"mean": -(grads[1] * mass.unsqueeze(-1) + 2 * grads[2] * first)}
    if through:
        if launch.across:
            launch.tensors["gain"] = launch.combine_gain()
        pulled = launch.pull()
        sharp = launch.tensors["sharp"]
        assert sharp is not None
        found["mean"] += 2 * sharp * pulled["total"].view_as(first)
        found["sharp"], found["level"] = -pulled["square"], pulled["mass"]
        if args[6] is not None:
            found["background"] = _background_grad(launch, args, pulled)
    names = ("poses", "activations", "weight", "mean", "sharp", "level", "background")
    wanted = {name: output for name, output in zip(names, outputs, strict=False) if output is not None}
    if wanted.keys() & {"poses", "activations", "weight"}:
        found |= launch.spread(through)
    for name, output in wanted.items():
        output.copy_(found[name].view_as(output))


def _background_grad(launch: Launch, args: _native.Arguments, pulled: dict[str, Tensor]) -> Tensor:
    """Return the gradient of the background: minus the sum of a_i, times its share, times the gain of a child."""
    if not launch.across:
        return pulled["unshared"].sum()
    given = {name: tensor for name, tensor in launch.tensors.items() if tensor is not None}
    return -(args[1] * torch.exp(given["background"] - given["norm"]) * given["gain"]).sum()


_gaussian = _native.native_op(
    "gaussian_triton",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor mean, Tensor? sharp, Tensor? level, Tensor? background, "
    "Tensor? offsets, int[] window, bool across) -> (Tensor, Tensor, Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    saved=[0, 1, 3],
    differentiable=7,
    backend="triton",
)
