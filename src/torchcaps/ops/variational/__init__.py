"""Routing by variational Bayes (Ribeiro, Leontidis, Kollias 2020)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops.variational import cpu
from torchcaps.ops.variational.reference import Prior, variational_routing, variational_steps

register_routing(
    Routing(
        name="variational",
        steps=variational_steps,
        kernels=(
            Kernel(
                "cpu",
                dense=cpu.dense,
                conv=cpu.conv,
                unavailable=_native.unavailable,
                unsupported=cpu.unsupported,
                describe=_native.instruction_set,
            ),
        ),
        reads_activations=True,
    )
)

__all__ = ["Prior", "variational_routing", "variational_steps"]
