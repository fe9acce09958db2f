"""Routing by synchronisation: children and parents as Kuramoto oscillators on a sphere."""

from torchcaps.ops.kuramoto.reference import kuramoto_routing, kuramoto_steps

__all__ = ["kuramoto_routing", "kuramoto_steps"]
