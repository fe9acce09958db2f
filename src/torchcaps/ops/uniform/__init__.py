"""The two controls: routing that nobody decides, uniform or drawn at random once and for all."""

from torchcaps.ops.uniform.random import random_logits, random_routing, random_steps
from torchcaps.ops.uniform.reference import uniform_routing, uniform_steps

__all__ = ["random_logits", "random_routing", "random_steps", "uniform_routing", "uniform_steps"]
