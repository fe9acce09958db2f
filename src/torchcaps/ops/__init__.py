"""Pure functions of tensors: squashing, voting, routing. No parameters, no modules, no global state."""

from torchcaps.ops._steps import ROUTINGS, Step, parent_softmax, trace
from torchcaps.ops.attention import attention_routing, attention_steps
from torchcaps.ops.conv import Window, receptive_centres
from torchcaps.ops.dynamic import dynamic_routing, dynamic_steps
from torchcaps.ops.em import em_routing, em_steps
from torchcaps.ops.kmeans import kmeans_routing, kmeans_steps
from torchcaps.ops.kuramoto import kuramoto_routing, kuramoto_steps
from torchcaps.ops.self_attention import self_attention_routing, self_attention_steps
from torchcaps.ops.self_routing import self_routing, self_routing_steps
from torchcaps.ops.squash import squash
from torchcaps.ops.uniform import random_routing, random_steps, uniform_routing, uniform_steps
from torchcaps.ops.variational import Prior, variational_routing, variational_steps
from torchcaps.ops.votes import matrix_vote, vote

ROUTINGS.add("dynamic", dynamic_steps)
ROUTINGS.add("em", em_steps)
ROUTINGS.add("kuramoto", kuramoto_steps)
ROUTINGS.add("random", random_steps)
ROUTINGS.add("self_routing", self_routing_steps)
ROUTINGS.add("uniform", uniform_steps)
ROUTINGS.add("variational", variational_steps)
ROUTINGS.add("kmeans", kmeans_steps)
ROUTINGS.add("attention", attention_steps)
ROUTINGS.add("self_attention", self_attention_steps)

__all__ = [
    "ROUTINGS",
    "Prior",
    "Step",
    "Window",
    "attention_routing",
    "dynamic_routing",
    "em_routing",
    "kmeans_routing",
    "kuramoto_routing",
    "matrix_vote",
    "parent_softmax",
    "random_routing",
    "receptive_centres",
    "self_attention_routing",
    "self_routing",
    "squash",
    "trace",
    "uniform_routing",
    "variational_routing",
    "vote",
]
