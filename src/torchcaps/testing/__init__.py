"""Public test tools: the laws of routing, and a fast twin against its reference."""

from torchcaps.testing import laws
from torchcaps.testing.twins import assert_matches

__all__ = ["assert_matches", "laws"]
