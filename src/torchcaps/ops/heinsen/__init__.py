"""Routing of vectors in sequences (Heinsen 2022)."""

from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops.heinsen import recompute
from torchcaps.ops.heinsen.reference import heinsen_routing, heinsen_steps

register_routing(
    Routing(
        name="heinsen",
        steps=heinsen_steps,
        kernels=(Kernel("recompute", dense=recompute.dense),),
        reads_activations=True,
        reads_poses=True,
        takes_bias=True,
    )
)

__all__ = ["heinsen_routing", "heinsen_steps"]
