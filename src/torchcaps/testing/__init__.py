"""Public test tools: the laws of routing, and a fast twin against its reference."""

from torchcaps.testing import laws

__all__ = ["laws"]
