"""Pure functions of tensors: squashing, voting, routing. No parameters, no modules, no global state."""

from torchcaps.ops._steps import ROUTINGS, trace
from torchcaps.ops.dynamic import dynamic_routing, dynamic_steps
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import vote

ROUTINGS.add("dynamic", dynamic_steps)

__all__ = ["ROUTINGS", "dynamic_routing", "squash", "trace", "vote"]
