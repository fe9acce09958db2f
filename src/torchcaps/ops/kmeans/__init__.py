"""Routing as clustering: k-means with soft assignment (Su Jianlin 2018)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Routing, register_routing
from torchcaps.ops._triton.device import triton_kernel
from torchcaps.ops.kmeans import cpu, triton
from torchcaps.ops.kmeans.reference import kmeans_routing, kmeans_steps

register_routing(
    Routing(
        name="kmeans",
        steps=kmeans_steps,
        kernels=(triton_kernel(triton.route), _native.cpu_kernel(cpu.dense, cpu.conv)),
        per_sample=frozenset({"logits"}),
    )
)

__all__ = ["kmeans_routing", "kmeans_steps"]
