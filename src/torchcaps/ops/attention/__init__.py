"""Inverted dot-product attention routing (Tsai, Srivastava, Goh, Salakhutdinov 2020)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Routing, register_routing
from torchcaps.ops._triton.device import triton_kernel
from torchcaps.ops.attention import cpu, triton
from torchcaps.ops.attention.reference import attention_routing, attention_steps

register_routing(
    Routing(
        name="attention",
        steps=attention_steps,
        kernels=(triton_kernel(triton.route), _native.cpu_kernel(cpu.dense, cpu.conv)),
        per_sample=frozenset({"parents"}),
    )
)

__all__ = ["attention_routing", "attention_steps"]
