"""Pure functions of tensors: squashing, voting, routing.

`route` and `route_conv` route children through a weight with the fastest available kernel; `<name>_routing` and `trace`
run a reference on votes. Every subpackage registers one algorithm in `ROUTINGS`.
"""

import importlib
import pkgutil

from torchcaps.ops._backends import KernelStatus, fastest_backend, list_kernels, transforms_active
from torchcaps.ops._iterations import ParentSoftmax, Step, last_step, parent_softmax, routing_of
from torchcaps.ops._mask import expand_mask, mask_children
from torchcaps.ops._pieces import set_votes_memory
from torchcaps.ops._route import route, route_conv, trace
from torchcaps.ops._routing import ROUTINGS, Kernel, Routing, register_routing
from torchcaps.ops._support import Support, list_support, support_table
from torchcaps.ops.attention import attention_routing
from torchcaps.ops.complex_conv import complex_conv2d, from_complex, to_complex
from torchcaps.ops.conv import Window, receptive_centres
from torchcaps.ops.decoupled import decoupled_conv2d
from torchcaps.ops.dynamic import dynamic_routing
from torchcaps.ops.em import em_routing
from torchcaps.ops.heinsen import heinsen_routing
from torchcaps.ops.kmeans import kmeans_routing
from torchcaps.ops.kuramoto import kuramoto_routing
from torchcaps.ops.random import random_routing
from torchcaps.ops.self_attention import self_attention_routing
from torchcaps.ops.self_routing import self_routing
from torchcaps.ops.squash import SquashForm, squash, squashed_length
from torchcaps.ops.uniform import uniform_routing
from torchcaps.ops.variational import Prior, variational_routing
from torchcaps.ops.votes import matrix_vote, vote

# A new algorithm is registered by its folder alone.
for _package in pkgutil.iter_modules(__path__):
    if _package.ispkg:
        importlib.import_module(f"{__name__}.{_package.name}")

__all__ = [
    "ROUTINGS",
    "Kernel",
    "KernelStatus",
    "ParentSoftmax",
    "Prior",
    "Routing",
    "SquashForm",
    "Step",
    "Support",
    "Window",
    "attention_routing",
    "complex_conv2d",
    "decoupled_conv2d",
    "dynamic_routing",
    "em_routing",
    "expand_mask",
    "fastest_backend",
    "from_complex",
    "heinsen_routing",
    "kmeans_routing",
    "kuramoto_routing",
    "last_step",
    "list_kernels",
    "list_support",
    "mask_children",
    "matrix_vote",
    "parent_softmax",
    "random_routing",
    "receptive_centres",
    "register_routing",
    "route",
    "route_conv",
    "routing_of",
    "self_attention_routing",
    "self_routing",
    "set_votes_memory",
    "squash",
    "squashed_length",
    "support_table",
    "to_complex",
    "trace",
    "transforms_active",
    "uniform_routing",
    "variational_routing",
    "vote",
]
