"""Pure functions of tensors: squashing, voting, routing. No parameters, no modules, no global state."""

from torchcaps.ops._steps import ROUTINGS, Step, parent_softmax, trace
from torchcaps.ops.conv import Window, receptive_centres
from torchcaps.ops.dynamic import dynamic_routing, dynamic_steps
from torchcaps.ops.em import em_routing, em_steps
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import matrix_vote, vote

ROUTINGS.add("dynamic", dynamic_steps)
ROUTINGS.add("em", em_steps)

__all__ = [
    "ROUTINGS",
    "Step",
    "Window",
    "dynamic_routing",
    "em_routing",
    "matrix_vote",
    "parent_softmax",
    "receptive_centres",
    "squash",
    "trace",
    "vote",
]
