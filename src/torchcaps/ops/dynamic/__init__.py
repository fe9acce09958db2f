"""Dynamic routing by agreement (Sabour, Frosst, Hinton 2017)."""

from torchcaps.ops.dynamic.reference import dynamic_routing, dynamic_steps

__all__ = ["dynamic_routing", "dynamic_steps"]
