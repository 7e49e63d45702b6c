"""Runs operations on transactional ids, and gets what they have to wait for: a new producer id, or the completion of
the previous transaction.

An operation that waited is run again, on the state of that time. What waits is only the request: if its client
disconnects, nothing that was decided is undone, and what the coordinator does by itself goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar, cast

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.seams import Timers
from ottla.coordinator.shards import WriteOutcome
from ottla.coordinator.transactions.seams import ProducerIdSource
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.transaction import NewId, StillCompletingError

R = TypeVar("R")

Operation: TypeAlias = Callable[[TransactionShard, NewId], "WriteOutcome[R]"]


class NewIdNeededError(Exception):
    """The operation needs a producer id that was never used."""


def _no_id() -> int:
    raise NewIdNeededError


class Decisions:
    """Owned by the loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        clock: Clock,
        timers: Timers,
        producer_ids: ProducerIdSource,
        completion_wait_ms: int,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._timers = timers
        self._producer_ids = producer_ids
        self._completion_wait_s = completion_wait_ms / 1000
        self._spare_ids: list[int] = []
        """Producer ids that were fetched for an operation which then did not need them."""

    def now(self, transactional_id: str, operation: Operation[R], *, waits: bool = True) -> R | Coroutine[Any, Any, R]:
        """The answer itself if nothing has to be waited for. Raises `CoordinatorError`, as the coroutine does; without
        `waits`, immediately if the previous transaction is not completed."""
        try:
            return self._runtime.write_now(transactional_id, lambda shard: operation(shard, _no_id))
        except NewIdNeededError:  # It changed nothing, nor does the other one.
            return self.later(transactional_id, cast("Operation[R | None]", operation))
        except StillCompletingError as error:
            if waits:
                return self.later(transactional_id, cast("Operation[R | None]", operation))
            raise _still_completing() from error

    async def later(self, transactional_id: str, operation: Operation[R | None]) -> R:
        """Waits as long as the operation needs. An operation that answers None is run again when the transaction is
        completed. Raises `CoordinatorError`: CONCURRENT_TRANSACTIONS if that takes too long."""
        attempt = _Attempt(operation, self._spare_ids)
        wait_until_s: float | None = None
        try:
            while True:
                try:
                    answer = self._runtime.write_now(transactional_id, attempt.run)
                    if isinstance(answer, Coroutine):
                        answer = await answer
                    if answer is not None:
                        return answer
                except NewIdNeededError:
                    attempt.new_id = await self._producer_ids.next_id()
                    continue
                except StillCompletingError:
                    pass
                if wait_until_s is None:
                    wait_until_s = self._clock.monotonic_s() + self._completion_wait_s
                await self._completed(attempt.shard, transactional_id, wait_until_s)
        finally:
            attempt.return_unused_id()

    async def _completed(self, shard: TransactionShard, transactional_id: str, until_s: float) -> None:
        if not shard.is_completing(transactional_id):
            return
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(*, is_completed: bool) -> None:
            if not told.done():
                told.set_result(is_completed)

        stop = shard.when_completed(transactional_id, lambda: tell(is_completed=True))
        delay_s = max(until_s - self._clock.monotonic_s(), 0.0)
        timer = self._timers.call_later(delay_s, lambda: tell(is_completed=False))
        try:
            is_completed = await told
        finally:
            stop()
            timer.cancel()
        if not is_completed:
            raise _still_completing()


def _still_completing() -> CoordinatorError:
    return CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS, "The previous transaction is still being completed.")


class _Attempt(Generic[R]):
    """An operation with the shard that it ran on last, and at most one new producer id."""

    def __init__(self, operation: Operation[R], spare_ids: list[int]) -> None:
        self._operation = operation
        self._spare_ids = spare_ids
        self.shard: TransactionShard
        self.new_id: int | None = None

    def run(self, shard: TransactionShard) -> WriteOutcome[R]:
        self.shard = shard
        return self._operation(shard, self._take_id)

    def _take_id(self) -> int:
        taken, self.new_id = self.new_id, None
        if taken is not None:
            return taken
        if self._spare_ids:
            return self._spare_ids.pop()
        raise NewIdNeededError

    def return_unused_id(self) -> None:
        if self.new_id is not None:
            self._spare_ids.append(self.new_id)
            self.new_id = None
