"""Inverted dot-product attention routing (Tsai, Srivastava, Goh, Salakhutdinov 2020)."""

from torchcaps.ops.attention.reference import attention_routing, attention_steps

__all__ = ["attention_routing", "attention_steps"]
