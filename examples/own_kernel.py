"""Register a routing with a C++ kernel of your own, and hold the kernel to its reference."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.ops import Kernel, Routing, Step, register_routing, route, squashed_length, vote
from torchcaps.testing import assert_matches_reference


# 1. The reference: a generator of the votes that yields one step per iteration.
def mean_steps(votes: Tensor):
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    poses = votes.mean(dim=1)  # [B, J, D]
    yield Step(logits, logits.softmax(dim=-1), poses, squashed_length(poses))


# 2. The kernel: it computes the same from poses and weight, and has a backward pass.
LIBRARY = Path(tempfile.mkdtemp()) / "own_kernel.so"
COMMAND = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(LIBRARY)]
subprocess.run([*COMMAND, str(Path(__file__).with_suffix(".cpp"))], check=True)
library = ctypes.CDLL(str(LIBRARY))


def call(function: Any, poses: Tensor, weight: Tensor, *others: Tensor) -> None:
    sizes = (ctypes.c_int64 * 5)(*poses.shape[:2], *weight.shape[1:])
    function(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (poses, weight, *others)), sizes)


class MeanVotes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, poses: Tensor, weight: Tensor) -> Tensor:
        poses, weight = poses.contiguous(), weight.contiguous()
        out = poses.new_zeros(len(poses), weight.shape[1], weight.shape[3])  # [B, J, D]
        call(library.mean_forward, poses, weight, out)
        ctx.save_for_backward(poses, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        results = tuple(torch.zeros_like(tensor) for tensor in ctx.saved_tensors)
        call(library.mean_backward, *ctx.saved_tensors, grads[0].contiguous(), *results)
        return results


def dense(children: tc.Capsules, weight: Tensor) -> tc.Capsules:
    poses = MeanVotes.apply(children.poses, weight)  # [B, J, D]
    return tc.Capsules(poses, squashed_length(poses))


def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
    return None if (device.type, dtype) == ("cpu", torch.float32) else "it computes float32 on the CPU"


def unsupported(children: tc.Capsules, weight: Tensor, **params: Any) -> str | None:
    return None if weight.dim() == 4 else "it takes one matrix per child and parent"


# 3. One registration. `auto` now takes the kernel where it can serve, and the reference elsewhere.
kernel = Kernel("own_cpp", dense=dense, unavailable=unavailable, unsupported=unsupported)
register_routing(Routing("mean", mean_steps, kernels=(kernel,)))

# 4. The tolerance is earned: the error is compared with that of eager PyTorch, in values and gradients.
poses, weight = torch.randn(4, 9, 5), torch.randn(9, 3, 5, 7)


def routed(poses: Tensor, weight: Tensor) -> Tensor:
    return route(tc.Capsules(poses, poses[..., 0]), weight, "mean", backend="own_cpp").poses


assert_matches_reference(routed, lambda poses, weight: vote(poses, weight).mean(dim=1), [poses, weight])
children = tc.Capsules(poses, poses.norm(dim=-1))
print("own_cpp matches its reference in values and gradients")
print("backends of 'mean':", ", ".join(tc.ops.ROUTINGS["mean"].backends))
print("float64 takes:", tc.ops.fastest_backend("mean", torch.device("cpu"), torch.float64))
print(f"without votes in memory: {route(children, weight, 'mean').poses.shape}")
