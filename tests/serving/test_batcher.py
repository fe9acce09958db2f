from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from starlette.exceptions import HTTPException
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.serving import Batcher


def numbers(count: int, first: int = 0) -> list[Tensor]:
    return [torch.tensor(number) for number in range(first, first + count)]


class Recorder:
    """A computation that records its batches, and waits for permission if it is given none."""

    def __init__(self, *, blocked: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.allowed = threading.Event()
        if not blocked:
            self.allowed.set()

    def __call__(self, images: list[Tensor]) -> list[int]:
        assert self.allowed.wait(30)
        self.batches.append([int(image) for image in images])
        self.threads.add(threading.get_ident())
        return [10 * int(image) for image in images]


def test_requests_share_a_batch_and_get_their_own_results() -> None:
    compute = Recorder()

    async def go() -> list[list[int]]:
        async with Batcher(compute, max_batch=6, max_wait=30) as batcher:
            return await asyncio.gather(*[batcher.submit(numbers(2, 2 * number)) for number in range(3)])

    # Nothing but the full batch ends the wait of 30 seconds.
    assert asyncio.run(go()) == [[0, 10], [20, 30], [40, 50]]
    assert compute.batches == [[0, 1, 2, 3, 4, 5]]


def test_large_request_takes_several_batches() -> None:
    compute = Recorder()

    async def go() -> list[int]:
        async with Batcher(compute, max_batch=4, max_wait=0) as batcher:
            return await batcher.submit(numbers(10))

    assert asyncio.run(go()) == [10 * number for number in range(10)]
    assert [len(batch) for batch in compute.batches] == [4, 4, 2]
    assert len(compute.threads) == 1


def test_wait_is_limited() -> None:
    async def go() -> list[int]:
        async with Batcher(Recorder(), max_batch=100, max_wait=0.01) as batcher:
            return await asyncio.wait_for(batcher.submit(numbers(1)), 20)

    assert asyncio.run(go()) == [0]


def test_images_that_arrive_during_a_computation_form_the_next_batch() -> None:
    compute = Recorder(blocked=True)

    async def go() -> None:
        async with Batcher(compute, max_batch=8, max_wait=0) as batcher:
            first = asyncio.create_task(batcher.submit(numbers(1)))
            await asyncio.sleep(0.05)
            later = [asyncio.create_task(batcher.submit(numbers(1, number))) for number in range(1, 6)]
            await asyncio.sleep(0.05)
            compute.allowed.set()
            await asyncio.gather(first, *later)

    asyncio.run(go())
    assert compute.batches == [[0], [1, 2, 3, 4, 5]]


def test_full_queue_is_refused() -> None:
    compute = Recorder(blocked=True)

    async def go() -> None:
        async with Batcher(compute, max_batch=1, max_wait=0, max_queue=3) as batcher:
            accepted = asyncio.create_task(batcher.submit(numbers(3)))
            await asyncio.sleep(0.05)
            assert len(batcher) == 2
            with pytest.raises(HTTPException) as refused:
                await batcher.submit(numbers(2))
            assert refused.value.status_code == 503
            compute.allowed.set()
            assert await accepted == [0, 10, 20]

    asyncio.run(go())


def test_end_computes_what_was_submitted_and_refuses_more() -> None:
    compute = Recorder()

    async def go() -> list[int]:
        async with Batcher(compute, max_batch=100, max_wait=30) as batcher:
            waiting = asyncio.create_task(batcher.submit(numbers(3)))
            await asyncio.sleep(0)
        with pytest.raises(HTTPException):
            await batcher.submit(numbers(1))
        return await waiting

    assert asyncio.run(go()) == [0, 10, 20]


def test_failure_reaches_its_batch_only() -> None:
    def compute(images: list[Tensor]) -> list[int]:
        if any(int(image) == 1 for image in images):
            raise RuntimeError("broken")
        return [int(image) for image in images]

    async def go() -> list[object]:
        async with Batcher(compute, max_batch=1, max_wait=0) as batcher:
            return await asyncio.gather(
                *[batcher.submit(numbers(1, number)) for number in range(3)], return_exceptions=True
            )

    first, second, third = asyncio.run(go())
    assert (first, third) == ([0], [2])
    assert isinstance(second, RuntimeError)


def test_client_that_has_gone_costs_no_computation() -> None:
    compute = Recorder(blocked=True)

    async def go() -> None:
        async with Batcher(compute, max_batch=1, max_wait=0) as batcher:
            tasks = [asyncio.create_task(batcher.submit(numbers(1, number))) for number in range(3)]
            await asyncio.sleep(0.05)
            tasks[1].cancel()
            await asyncio.sleep(0)
            compute.allowed.set()
            assert await tasks[0] == [0]
            assert await tasks[2] == [20]

    asyncio.run(go())
    assert compute.batches == [[0], [2]]


def test_sizes_are_observed() -> None:
    sizes: list[int] = []

    async def go() -> None:
        async with Batcher(Recorder(), max_batch=2, max_wait=0, observe=sizes.append) as batcher:
            await batcher.submit(numbers(5))

    asyncio.run(go())
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(("name", "value"), [("max_batch", 0), ("max_wait", -1), ("max_wait", 61), ("max_queue", 0)])
def test_invalid_limits(name: str, value: float) -> None:
    with raises_about(ConfigError, name, value):
        Batcher(Recorder(), **{name: value})  # pyright: ignore[reportArgumentType]
