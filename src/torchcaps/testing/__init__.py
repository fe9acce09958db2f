"""Public test tools: the laws of routing, and the comparison of a kernel with its reference."""

from torchcaps.testing import laws
from torchcaps.testing.kernels import assert_matches_reference

__all__ = ["assert_matches_reference", "laws"]
