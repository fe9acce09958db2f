"""EM routing between matrix capsules (Hinton, Sabour, Frosst 2018)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops._triton.device import triton_kernel
from torchcaps.ops.em import cpu, export, triton
from torchcaps.ops.em.reference import em_routing, em_steps
from torchcaps.ops.em.schedules import inverse_temps

register_routing(
    Routing(
        name="em",
        steps=em_steps,
        kernels=(
            triton_kernel(triton.route, unsupported=triton.unsupported),
            Kernel(
                "cpu",
                dense=cpu.dense,
                conv=cpu.conv,
                unavailable=_native.unavailable,
                unsupported=cpu.unsupported,
                describe=_native.instruction_set,
            ),
            Kernel("export", conv=export.conv, unsupported=export.unsupported, composite=True, any_rank=True),
        ),
        reads_activations=True,
        per_sample=frozenset({"logits", "load"}),
    )
)

__all__ = ["em_routing", "em_steps", "inverse_temps"]
