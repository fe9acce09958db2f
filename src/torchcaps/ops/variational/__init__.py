"""Routing by variational Bayes (Ribeiro, Leontidis, Kollias 2020)."""

from torchcaps.ops.variational.reference import Prior, variational_routing, variational_steps

__all__ = ["Prior", "variational_routing", "variational_steps"]
