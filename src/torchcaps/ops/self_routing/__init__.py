"""Self-routing (Hahn, Pyeon, Kim 2019)."""

from torchcaps.ops.self_routing.reference import self_routing, self_routing_steps

__all__ = ["self_routing", "self_routing_steps"]
