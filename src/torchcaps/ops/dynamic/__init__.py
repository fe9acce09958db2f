"""Dynamic routing by agreement (Sabour, Frosst, Hinton 2017)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops._triton import device
from torchcaps.ops._triton.device import triton_kernel
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
                conv=triton_kernel(triton.route).conv,
                unavailable=device.unavailable,
                unsupported=triton.unsupported,
                any_rank=True,
                device="cuda",
                describe=device.describe,
            ),
            _native.cpu_kernel(cpu.dense, cpu.conv),
        ),
        takes_bias=True,
        per_sample=frozenset({"logits"}),
    )
)

__all__ = ["dynamic_routing", "dynamic_steps"]
