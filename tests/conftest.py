from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """A test that leaves more threads than it found makes all that come after it wait for one another."""
    before = torch.get_num_threads()
    yield
    if (left := torch.get_num_threads()) != before:
        torch.set_num_threads(before)
        pytest.fail(f"expected the test to leave {before} threads, got {left}")
