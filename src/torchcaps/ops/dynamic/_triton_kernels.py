"""The Triton kernels of dynamic routing and how they are launched; importing this needs Triton. See `triton.py`."""

# Triton is an extra, and the language of its kernels is not the Python that a type checker knows.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Elements of the tile [B, J, D] that one program holds, and programs that keep a large GPU busy. With eight elements
# per thread the compiler needs about 120 registers on sm_80, with sixteen more than 200.
_TILE = 2048
_PROGRAMS = 1024
_ACCUMULATORS = {torch.float64: tl.float64, torch.float32: tl.float32}


@triton.jit
def _coupling(votes, query, real, LEAKY: tl.constexpr):  # noqa: N803
    """Softmax over parents of votes . query, for tiles [B, J, D]: coupling [B, J]; padding is where `real` is False."""
    logits = tl.where(real, tl.sum(votes * query, axis=2), float("-inf"))  # [B, J]
    top = tl.max(logits, axis=1)  # [B]
    if LEAKY:
        top = tl.maximum(top, 0.0)
    raised = tl.exp(logits - top[:, None])  # [B, J]
    total = tl.sum(raised, axis=1)  # [B]
    if LEAKY:
        total += tl.exp(-top)
    return raised / total[:, None]


@triton.jit
def _pull(votes, coupling, grad):
    """Gradient of the logits, [B, J], from that of the presquash: coupling_j (votes_j . grad_j - their mean)."""
    gain = tl.sum(votes * grad, axis=2)  # [B, J]
    mean = tl.sum(coupling * gain, axis=1)  # [B]
    return coupling * (gain - mean[:, None])


# fmt: off
@triton.jit
def _pass(
    poses, weight, query, grad, partial, batch, children, parents, child_stride, chunk,
    P: tl.constexpr, D: tl.constexpr, LEAKY: tl.constexpr, PULL: tl.constexpr,  # noqa: N803
    TILE_B: tl.constexpr, TILE_J: tl.constexpr, TILE_D: tl.constexpr, ACC: tl.constexpr,  # noqa: N803
):
    """Sum over a chunk of children, for a tile of samples: coupling * votes, or (PULL) the gradient of the query."""
    sample = tl.program_id(0).to(tl.int64) * TILE_B + tl.arange(0, TILE_B)  # [B]
    parent = tl.arange(0, TILE_J)  # [J]
    inner = tl.arange(0, TILE_D)  # [D]
    present = sample < batch  # [B]
    real = (parent < parents)[None, :]  # [1, J]
    small = (parent < parents)[:, None] & (inner < D)[None, :]  # [J, D]
    at = (sample[:, None, None] * parents + parent[None, :, None]) * D + inner[None, None, :]  # [B, J, D]
    inside = present[:, None, None] & small[None, :, :]  # [B, J, D]
    queries = tl.load(query + at, mask=inside, other=0.0)  # [B, J, D]
    if PULL:
        pulled = tl.load(grad + at, mask=inside, other=0.0)  # [B, J, D]
    total = tl.zeros([TILE_B, TILE_J, TILE_D], ACC)
    first = tl.program_id(1).to(tl.int64) * chunk
    for child in range(first, tl.minimum(first + chunk, children)):
        votes = tl.zeros([TILE_B, TILE_J, TILE_D], ACC)
        for p in range(P):
            pose = tl.load(poses + (sample * children + child) * P + p, mask=present, other=0.0).to(ACC)  # [B]
            row = (parent[:, None] * P + p) * D + inner[None, :]  # [J, D]
            column = tl.load(weight + child * child_stride + row, mask=small, other=0.0).to(ACC)  # [J, D]
            votes += pose[:, None, None] * column[None, :, :]
        scale = _coupling(votes, queries, real, LEAKY)  # [B, J]
        if PULL:
            scale = _pull(votes, scale, pulled)  # [B, J]
        total += scale[:, :, None] * votes
    tl.store(partial + tl.program_id(1).to(tl.int64) * batch * parents * D + at, total, mask=inside)


@triton.jit
def _spread(
    poses, weight, queries, grads, grad_poses, partial, batch, children, parents, child_stride, group, span,
    P: tl.constexpr, D: tl.constexpr, ITERS: tl.constexpr, LEAKY: tl.constexpr, THROUGH: tl.constexpr,  # noqa: N803
    TILE_P: tl.constexpr, TILE_J: tl.constexpr, TILE_D: tl.constexpr, ACC: tl.constexpr,  # noqa: N803
):
    """For a group of children and a span of samples: the gradient of their poses, and of the weight that they share."""
    first = tl.arange(0, TILE_P)  # [P]
    parent = tl.arange(0, TILE_J)  # [J]
    inner = tl.arange(0, TILE_D)  # [D]
    real = (parent < parents)[None, :]  # [1, J]
    small = (parent < parents)[None, :, None] & (inner < D)[None, None, :]  # [1, J, D]
    inside = (first < P)[:, None, None] & small  # [P, J, D]
    entry = (parent[None, :, None] * P + first[:, None, None]) * D + inner[None, None, :]  # [P, J, D]
    place = parent[None, :, None] * D + inner[None, None, :]  # [1, J, D]
    total = tl.zeros([TILE_P, TILE_J, TILE_D], ACC)
    start = tl.program_id(0).to(tl.int64) * group
    begin = tl.program_id(1).to(tl.int64) * span
    for child in range(start, tl.minimum(start + group, children)):
        matrix = tl.load(weight + child * child_stride + entry, mask=inside, other=0.0).to(ACC)  # [P, J, D]
        for sample in range(begin, tl.minimum(begin + span, batch)):
            address = (sample * children + child) * P + first  # [P]
            pose = tl.load(poses + address, mask=first < P, other=0.0).to(ACC)  # [P]
            votes = tl.sum(pose[:, None, None] * matrix, axis=0)[None, :, :]  # [1, J, D]
            grad_votes = tl.zeros([1, TILE_J, TILE_D], ACC)
            for iteration in range(ITERS):
                at = (iteration * batch + sample) * parents * D + place  # [1, J, D]
                query = tl.load(queries + at, mask=small, other=0.0)  # [1, J, D]
                grad = tl.load(grads + at, mask=small, other=0.0)  # [1, J, D]
                coupling = _coupling(votes, query, real, LEAKY)  # [1, J]
                grad_votes += coupling[:, :, None] * grad
                if THROUGH:
                    grad_votes += _pull(votes, coupling, grad)[:, :, None] * query
            grad_pose = tl.sum(tl.sum(matrix * grad_votes, axis=2), axis=1)  # [P]
            tl.store(grad_poses + address, grad_pose, mask=first < P)
            total += pose[:, None, None] * grad_votes
    slot = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    tl.store(partial + slot * parents * P * D + entry, total, mask=inside)
# fmt: on


def _sizes(poses: Tensor, weight: Tensor) -> tuple[int, int, int, int, int]:
    """B, I, J, P, D."""
    return poses.shape[0], poses.shape[1], weight.shape[-3], poses.shape[2], weight.shape[-1]


def _warps(elements: int) -> int:
    """Return the number of warps of 32 threads for a program with a given number of elements."""
    return max(1, min(16, elements // 256))


def run_pass(poses: Tensor, weight: Tensor, query: Tensor, grad: Tensor | None, leaky: bool) -> Tensor:
    """Presquash without bias from a query, or from its gradient the gradient of the query: [B, J, D] from [B, J, D]."""
    batch, children, parents, size, dim = _sizes(poses, weight)
    tile_j, tile_d = triton.next_power_of_2(parents), triton.next_power_of_2(dim)
    tile_b = max(1, min(16, triton.next_power_of_2(batch), _TILE // (tile_j * tile_d)))
    blocks = triton.cdiv(batch, tile_b)
    chunk = max(1, triton.cdiv(children * blocks, _PROGRAMS))
    chunks = triton.cdiv(children, chunk)
    partial = poses.new_empty(chunks, batch, parents, dim, dtype=query.dtype)  # [chunks, B, J, D]
    stride = parents * size * dim if weight.dim() == 4 else 0
    query = query.contiguous()
    grad_or_any = query if grad is None else grad.contiguous()
    _pass[(blocks, chunks)](
        *(poses, weight, query, grad_or_any, partial, batch, children, parents, stride, chunk),
        *(size, dim, leaky, grad is not None, tile_b, tile_j, tile_d, _ACCUMULATORS[query.dtype]),
        num_warps=_warps(tile_b * tile_j * tile_d),
    )
    return partial.sum(dim=0)  # [B, J, D]


def run_spread(
    poses: Tensor, weight: Tensor, queries: Tensor, grads: Tensor, leaky: bool, through: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of poses [B, I, P] and weight from queries and presquash gradients [R, B, J, D]."""
    batch, children, parents, size, dim = _sizes(poses, weight)
    shared = weight.dim() == 3
    group = max(1, triton.cdiv(children, _PROGRAMS)) if shared else 1
    groups = triton.cdiv(children, group)
    span = max(1, triton.cdiv(batch * groups, _PROGRAMS))
    spans = triton.cdiv(batch, span)
    tiles = [triton.next_power_of_2(length) for length in (size, parents, dim)]
    grad_poses = torch.empty_like(poses)  # [B, I, P]
    partial = poses.new_empty(spans, groups, parents, size, dim, dtype=queries.dtype)  # [spans, groups, J, P, D]
    _spread[(groups, spans)](
        *(poses, weight, queries.contiguous(), grads.contiguous(), grad_poses, partial, batch, children, parents),
        *(0 if shared else parents * size * dim, group, span),
        *(size, dim, queries.shape[0], leaky, through, *tiles, _ACCUMULATORS[queries.dtype]),
        num_warps=_warps(tiles[0] * tiles[1] * tiles[2]),
    )
    return grad_poses, partial.sum(dim=(0, 1) if shared else 0).to(weight.dtype)
