"""Dynamic batching: images of requests that arrive at about the same time go through the network together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from torch import Tensor

from torchcaps.errors import ConfigError

Result = TypeVar("Result")


class _Waiting(NamedTuple):
    image: Tensor
    arrived: float
    result: asyncio.Future


class Batcher(Generic[Result]):
    """Collect images of all requests, and compute them in batches in one thread.

    A batch starts when it is full, or when its first image has waited for `max_wait` seconds. Images that arrive during
    a computation form the next batch, so that under load nothing waits for the clock.

    Args:
        compute: Function of a list of images of one shape that returns one result per image.
        max_batch: Largest number of images in a batch.
        max_wait: Seconds that the first image of a batch waits for others.
        max_queue: Largest number of waiting images; a request beyond it is refused with status 503.
        observe: Called with the size of each batch.

    Raises:
        ConfigError: If a limit is out of range.

    Example:
        >>> import torch
        >>> async def double() -> list[int]:
        ...     async with Batcher(lambda images: [2 * int(image) for image in images]) as batcher:
        ...         return await batcher.submit([torch.tensor(1), torch.tensor(2)])
        >>> asyncio.run(double())
        [2, 4]
    """

    def __init__(
        self,
        compute: Callable[[list[Tensor]], list[Result]],
        *,
        max_batch: int = 32,
        max_wait: float = 0.005,
        max_queue: int = 1024,
        observe: Callable[[int], None] | None = None,
    ) -> None:
        if max_batch < 1:
            raise ConfigError(f"max_batch: expected a count of at least 1, got {max_batch}")
        if not 0 <= max_wait <= 60:
            raise ConfigError(f"max_wait: expected from 0 to 60 seconds, got {max_wait}")
        if max_queue < 1:
            raise ConfigError(f"max_queue: expected a count of at least 1, got {max_queue}")
        self.compute = compute
        self.max_batch = max_batch
        self.max_wait = max_wait
        self.max_queue = max_queue
        self.observe = observe
        self._queue: deque[_Waiting] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    async def __aenter__(self) -> Batcher[Result]:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Compute what was submitted, and end."""
        self._closed = True
        self._changed.set()
        assert self._task is not None
        await self._task

    async def submit(self, images: Sequence[Tensor]) -> list[Result]:
        """Compute the results of some images, together with those of other callers.

        Args:
            images: The images.

        Returns:
            One result per image.

        Raises:
            HTTPException: With status 503, if too many images are waiting, or the server stops.
        """
        if self._closed or len(self._queue) + len(images) > self.max_queue:
            raise HTTPException(503, "too many images are waiting; try again in a moment", {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        entries = [_Waiting(image, loop.time(), loop.create_future()) for image in images]
        self._queue.extend(entries)
        self._changed.set()
        return await asyncio.gather(*(entry.result for entry in entries))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        # One thread: a second batch at the same time would only make both slower.
        with ThreadPoolExecutor(1, "batcher") as thread:
            while await self._collect(loop):
                batch = [self._queue.popleft() for _ in range(min(self.max_batch, len(self._queue)))]
                # A client may have gone.
                batch = [entry for entry in batch if not entry.result.done()]
                if batch:
                    await self._run(batch, loop, thread)

    async def _collect(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until a batch can start; False if there is nothing left and the server stops."""
        while not self._queue:
            if self._closed:
                return False
            self._changed.clear()
            await self._changed.wait()
        deadline = self._queue[0].arrived + self.max_wait
        while len(self._queue) < self.max_batch and not self._closed and (left := deadline - loop.time()) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                break
        return True

    async def _run(self, batch: list[_Waiting], loop: asyncio.AbstractEventLoop, thread: ThreadPoolExecutor) -> None:
        try:
            results = await loop.run_in_executor(thread, self.compute, [entry.image for entry in batch])
            assert len(results) == len(batch)
        # Whatever fails, each request gets a response, and the next batch is computed.
        except Exception as error:
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_exception(error)
        else:
            for entry, result in zip(batch, results, strict=True):
                if not entry.result.done():
                    entry.result.set_result(result)
        if self.observe is not None:
            self.observe(len(batch))
