"""Routing by variational Bayes (Ribeiro, Leontidis, Kollias 2020)."""

from torchcaps.ops._routing import Routing, register_routing
from torchcaps.ops.variational.reference import Prior, variational_routing, variational_steps

register_routing(Routing(name="variational", steps=variational_steps, reads_activations=True))

__all__ = ["Prior", "variational_routing", "variational_steps"]
