"""Launch the Triton kernels: sizes, lookup tables of a grid, partial sums and their order. Importing needs Triton."""

# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from torchcaps.ops._triton import device, kernels
from torchcaps.ops._triton.layer import LayerSizes
from torchcaps.ops._triton.tiles import LIVE, PROGRAMS, accumulate_tiles, power_of_2, spread_tiles

_MODES = ("sum", "pull", "norm", "gain")
_ACCUMULATORS = {torch.float64: tl.float64, torch.float32: tl.float32}


@functools.lru_cache(maxsize=64)
def _make_tables(sizes: LayerSizes, device: torch.device) -> tuple[Tensor, Tensor]:
    steps = [math.prod(sizes.grid[axis + 1 :]) for axis in range(len(sizes.grid))]

    def number(spots: tuple[int, ...], factor: int) -> int:
        return sum(spot * factor * step for spot, step in zip(spots, steps, strict=True))

    origin = [number(spots, sizes.stride) for spots in itertools.product(*map(range, sizes.positions))]
    shift = [number(spots, 1) for spots in itertools.product(*map(range, sizes.kernel))]
    return torch.tensor(origin, device=device), torch.tensor(shift, device=device)  # [positions], [places]


def _tables(sizes: LayerSizes, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the first cell of every position, and the distance of every place of the kernel from it."""
    return _make_tables(sizes._replace(batch=1, types=1, parents=1, vote_rows=1, inner=1, columns=1), device)


@dataclass
class Launch:
    """One pass over the votes of a layer: what the logits and the shares are made of.

    Args:
        sizes: Sizes of the layer.
        poses: [B, N, I, S], contiguous like all others.
        activations: [B, N, I].
        weight: [C or I, J, P, columns].
        offsets: [places, axes].
        tensors: Other tensors by the name that the kernels have for them; missing ones are not read.
        gauss: Sums are those of distances from the centre, and logits log densities.
        weighted: Shares are the coupling times the activation.
        scaled_offsets: Offsets are multiplied by the activation.
        across: Parents of all positions that see a child compete for it.
        dtype: Type of sums.
    """

    sizes: LayerSizes
    poses: Tensor
    activations: Tensor
    weight: Tensor
    offsets: Tensor | None
    dtype: torch.dtype
    gauss: bool = False
    weighted: bool = False
    across: bool = False
    scaled_offsets: bool = False
    tensors: dict[str, Tensor | None] = field(default_factory=dict)

    @property
    def has_logits(self) -> bool:
        """Whether the coupling depends on the votes or the poses."""
        return any(self.tensors.get(name) is not None for name in ("key", "sharp", "base", "route"))

    def combine_norm(self) -> Tensor:
        """Return the log-sum-exp of the logits of all parents that see a child: [B, N, I]."""
        edges = self._run(kernels.NORM)["edges"] if self.has_logits else self._uniform_edges()  # [rows, C]
        norm = edges.new_full(self.poses.shape[:3], -torch.inf)  # [B, N, I]
        for cells, places in self._turns():
            norm[:, cells] = torch.logaddexp(norm[:, cells], self._at_places(edges, places))
        background = self.tensors.get("background")
        return norm if background is None else torch.logaddexp(norm, background.to(norm))

    def combine_gain(self) -> Tensor:
        """Return the mean gradient of the coupling of each child, over all parents that see it: [B, N, I]."""
        return self.fold(self._run(kernels.GAIN)["edges"])

    def sum(self) -> dict[str, Tensor]:
        """Return `total` [rows, J, D], and with shares `mass` [rows, J], with Gaussians also `square` [rows, J, D]."""
        return self._run(kernels.SUM)

    def pull(self) -> dict[str, Tensor]:
        """Return the same sums with the gradients of the logits in place of the shares."""
        return self._run(kernels.PULL)

    def fold(self, edges: Tensor) -> Tensor:
        """Add up what each child has at the positions that see it: [rows, C, ...] -> [B, N, I, ...]."""
        if not self.sizes.is_grid:
            return edges.view(*self.poses.shape[:3], *edges.shape[2:])
        total = edges.new_zeros(*self.poses.shape[:3], *edges.shape[2:])  # [B, N, I, ...]
        for cells, places in self._turns():
            # The cells of one turn differ, so that nothing is added twice and the order of sums is fixed.
            total[:, cells] += self._at_places(edges, places)
        return total

    def spread(self, through: bool) -> dict[str, Tensor]:
        """Return the gradients of poses, activations, weight, base or prior, and route, from those of the sums."""
        sizes, poses, iters = self.sizes, self.poses, self.tensors["grad"].shape[0]  # pyright: ignore[reportOptionalMemberAccess]
        tiles = spread_tiles(sizes.inner, sizes.parents, sizes.vote_rows, sizes.columns)
        children, matrices, rows = sizes.children, self.weight.shape[0], sizes.rows
        shared = matrices != children
        group = max(1, -(-sizes.places * matrices // PROGRAMS)) if shared else 1
        groups = -(-sizes.places // group) if shared else 1
        span = max(1, -(-rows * groups * matrices // PROGRAMS))
        spans = -(-rows // span)
        routed = self.tensors.get("route") is not None
        new = functools.partial(poses.new_empty, dtype=self.dtype)
        # Without a sum over positions the gradient of the poses is complete, and has their type.
        complete = not (sizes.is_grid or routed)
        grads = {
            "grad_poses": poses.new_empty(rows, children, sizes.size, dtype=poses.dtype if complete else self.dtype),
            "grad_routed": new(rows, children, sizes.size) if routed else new(0),
            "grad_activations": new(rows, children) if self.weighted or self.scaled_offsets else new(0),
            "grad_weight": new(spans, groups, matrices, sizes.parents, sizes.inner, sizes.columns),
            "grad_pair": new(spans, children, sizes.parents) if self._pairs() else new(0),
            "grad_route": new(spans, children, sizes.parents, sizes.size) if routed else new(0),
        }
        numbers = [rows, sizes.samples_positions, sizes.cells, sizes.types, sizes.places, sizes.parents]
        numbers += [children, matrices, group, span]
        constants = [iters, through, *self._flags(), tiles.first, power_of_2(sizes.size), *tiles[1:4]]
        arguments = [*self._inputs(), *grads.values(), *numbers, *constants, _ACCUMULATORS[self.dtype]]
        device.call(device.Call("spread", kernels.spread, (groups * matrices, spans), arguments, tiles.warps))
        grad_poses = self.fold(grads["grad_poses"])  # [B, N, I, S]
        if routed:
            grad_poses = grad_poses + self.fold(grads["grad_routed"])
        found = {"poses": grad_poses, "weight": grads["grad_weight"].sum(dim=(0, 1))}
        if grads["grad_activations"].numel():
            found["activations"] = self.fold(grads["grad_activations"])
        for name in ("pair", "route"):
            if grads[f"grad_{name}"].numel():
                found[name] = grads[f"grad_{name}"].sum(dim=0)
        return found

    def _run(self, mode: Any) -> dict[str, Tensor]:
        sizes, gradients = self.sizes, mode.value in (kernels.PULL.value, kernels.GAIN.value)
        live = LIVE["gauss" if self.gauss else "attend", "pull" if gradients else "sum"]
        tiles = accumulate_tiles(sizes.rows, sizes.parents, sizes.vote_rows, sizes.columns, live)
        blocks = -(-sizes.rows // tiles.first)
        chunk = max(1, -(-sizes.children * blocks // PROGRAMS))
        chunks = -(-sizes.children // chunk)
        new = functools.partial(self.poses.new_empty, dtype=self.dtype)
        sums = mode.value in (kernels.SUM.value, kernels.PULL.value)
        pairs = (chunks, sizes.rows, sizes.parents)
        unshared = self.gauss and self.tensors.get("background") is not None and mode.value == kernels.PULL.value
        out = {
            "total": new(*pairs, sizes.out_dim) if sums else new(0),
            "square": new(*pairs, sizes.out_dim) if sums and self.gauss else new(0),
            "mass": new(pairs) if sums and self.weighted else new(0),
            "unshared": new(chunks, sizes.rows) if unshared else new(0),
            "edges": new(0) if sums else new(sizes.rows, sizes.children),
        }
        numbers = [sizes.rows, sizes.samples_positions, sizes.cells, sizes.types, sizes.parents, sizes.children, chunk]
        constants = [mode.value, *self._flags(), *tiles[:4], _ACCUMULATORS[self.dtype]]
        arguments = [*self._inputs(), *out.values(), *numbers, *constants]
        device.call(device.Call(_MODES[mode.value], kernels.accumulate, (blocks, chunks), arguments, tiles.warps))
        # The chunks are added in one order: two runs give the same bits.
        return {name: part if name == "edges" else part.sum(dim=0) for name, part in out.items() if part.numel()}

    def _inputs(self) -> list[Tensor]:
        unread = self.poses
        names = ("centre", "sharp", "level", "prior", "base", "route", "background", "norm")
        names += ("grad", "grad_square", "grad_mass", "gain")
        tables = _tables(self.sizes, self.poses.device) if self.sizes.is_grid else (unread, unread)
        given = {**self.tensors, "centre": self.tensors.get("key", self.tensors.get("mean"))}
        others = [given.get(name) for name in names]
        offsets = unread if self.offsets is None else self.offsets
        fixed = [self.poses, self.activations, self.weight, offsets, *tables]
        return [*fixed, *(unread if tensor is None else tensor.contiguous() for tensor in others)]

    def _pairs(self) -> bool:
        return any(self.tensors.get(name) is not None for name in ("prior", "base"))

    def _flags(self) -> list[Any]:
        """Return the constants from GAUSS to AXES."""
        sizes, given = self.sizes, {name for name, tensor in self.tensors.items() if tensor is not None}
        offsets = 0 if self.offsets is None else 2 if self.scaled_offsets else 1
        return [
            self.gauss,
            "key" in given or "sharp" in given,
            *(name in given for name in ("prior", "base", "route")),
            self.weighted,
            "background" in given,
            self.across,
            offsets,
            sizes.is_grid,
            self.weight.shape[0] != sizes.children,
            sizes.vote_rows,
            sizes.inner,
            sizes.columns,
            len(sizes.grid),
        ]

    def _turns(self) -> list[tuple[Tensor, slice]]:
        """Return cells and the places that see them, such that the cells of one turn differ."""
        origin, shift = _tables(self.sizes, self.poses.device)
        if self.sizes.disjoint:
            return [((origin[:, None] + shift).flatten(), slice(None))]
        return [(origin + shift[place], slice(place, place + 1)) for place in range(self.sizes.places)]

    def _at_places(self, edges: Tensor, places: slice) -> Tensor:
        """Return the edges [rows, C, ...] of some places as [B, positions * places, I, ...]."""
        sizes = self.sizes
        shape = (sizes.batch, sizes.samples_positions, sizes.places, sizes.types, *edges.shape[2:])
        return edges.view(shape)[:, :, places].flatten(1, 2)

    def _uniform_edges(self) -> Tensor:
        shape, parents = (self.sizes.rows, self.sizes.children), self.sizes.parents
        return self.poses.new_full(shape, math.log(parents), dtype=self.dtype)
