"""The limits of memory of the tests themselves."""

from __future__ import annotations

import sys

import pytest
import torch

from limits import memory_limit, peak_memory, ran_out_of_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits need Linux")


def test_more_than_the_limit_is_refused() -> None:
    with memory_limit(10**8):
        bytearray(10**7)
        with pytest.raises(MemoryError):
            bytearray(10**9)
        with pytest.raises(RuntimeError) as caught:
            torch.empty(10**9)
    assert ran_out_of_memory(caught.value)
    assert len(bytearray(10**9)) == 10**9


def test_growth_is_that_of_the_block() -> None:
    with peak_memory() as before:
        torch.ones(10**8, dtype=torch.uint8)
    with peak_memory() as after:
        torch.ones(10**6, dtype=torch.uint8)
    assert before[0] > 9 * 10**7 > after[0]


def test_reasons_are_searched() -> None:
    def read() -> None:
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("damaged") from None

    with pytest.raises(ValueError, match="damaged") as caught:
        read()
    assert ran_out_of_memory(caught.value)
    assert not ran_out_of_memory(ValueError("damaged"))
