"""Self-attention routing of Efficient-CapsNet (Mazzia, Salvetti, Chiaberge 2021)."""

from torchcaps.ops.self_attention.reference import self_attention_routing, self_attention_steps

__all__ = ["self_attention_routing", "self_attention_steps"]
