"""Self-attention routing of Efficient-CapsNet (Mazzia, Salvetti, Chiaberge 2021)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops._triton.device import triton_kernel
from torchcaps.ops.self_attention import cpu, recompute, triton
from torchcaps.ops.self_attention.reference import self_attention_routing, self_attention_steps

register_routing(
    Routing(
        name="self_attention",
        steps=self_attention_steps,
        kernels=(
            triton_kernel(triton.route),
            _native.cpu_kernel(cpu.dense, cpu.conv),
            Kernel("recompute", dense=recompute.dense, unsupported=recompute.unsupported),
        ),
    )
)

__all__ = ["self_attention_routing", "self_attention_steps"]
