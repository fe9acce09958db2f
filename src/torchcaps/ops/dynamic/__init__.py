"""Dynamic routing by agreement (Sabour, Frosst, Hinton 2017)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops.dynamic import _dense, cpu, triton
from torchcaps.ops.dynamic.reference import dynamic_routing, dynamic_steps

register_routing(
    Routing(
        name="dynamic",
        steps=dynamic_steps,
        kernels=(
            Kernel(
                "triton",
                dense=_dense.dense_kernel(triton.compute),
                unavailable=triton.unavailable,
                unsupported=_dense.standard_squash_only,
                device="cuda",
                describe=triton.describe,
            ),
            _native.cpu_kernel(_dense.dense_kernel(cpu.compute), cpu.conv),
        ),
        takes_bias=True,
        per_sample=frozenset({"logits"}),
    )
)

__all__ = ["dynamic_routing", "dynamic_steps"]
