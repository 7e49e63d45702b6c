"""The result of `send_batch`: rows that are being delivered, in as many batches as necessary."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple

from ottla.client.arguments import seconds
from ottla.client.errors import PartlySentError
from ottla.client.produce.batch import Batch
from ottla.client.produce.delivery import Delivery


class BatchMetadata(NamedTuple):
    """Where some rows are: at consecutive offsets, from `offset` on. The offset is -1 if no acknowledgement was
    requested."""

    topic: str
    partition: int
    offset: int
    record_count: int


class TableDelivery:
    """The rows of one `send_batch`. Thread-safe; any number of threads and tasks can wait for it."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        """The number of records."""
        return sum(batch.count for batch in self._batches)

    def done(self) -> bool:
        """Whether the result of all rows is known."""
        return all(batch.outcome is not None for batch in self._leaves())

    def result(self, timeout: float | None = None) -> list[BatchMetadata]:
        """Waits for the metadata of all batches. Raises the error of the first batch that failed, or TimeoutError after
        `timeout` seconds. For threads; coroutines await the delivery itself."""
        failure = self.exception(timeout)
        if failure is not None:
            raise failure.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error of the first batch that failed, or None. Waits like `result`."""
        timeout_s = seconds("timeout", timeout)
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while not self.done():
            for batch in list(self._leaves()):
                _first_of(batch).exception(None if deadline_s is None else deadline_s - monotonic())
        return self._failure()

    def __await__(self) -> Generator[Any, None, list[BatchMetadata]]:
        while not self.done():
            for batch in list(self._leaves()):
                yield from _settled(batch).__await__()
        failure = self._failure()
        if failure is not None:
            raise failure.with_traceback(None)
        return self._metadata()

    def _leaves(self) -> Iterator[Batch]:
        for batch in self._batches:
            yield from batch.leaves()

    def _failure(self) -> Exception | None:
        found = None
        for batch in self._leaves():
            batch.is_watched = True
            if found is None and batch.outcome is not None:
                found = batch.outcome.error
        return found

    def _metadata(self) -> list[BatchMetadata]:
        return [BatchMetadata(*batch.partition, batch.offset_of(0), batch.count) for batch in self._leaves()]


@contextmanager
def told_if_partly_sent(batches: Sequence[Batch]) -> Iterator[None]:
    """If something fails while some of the batches are in flight, the error gives access to those."""
    try:
        yield
    except Exception as error:
        if not batches:
            raise
        raise PartlySentError(TableDelivery(batches), error) from error


def _first_of(batch: Batch) -> Delivery:
    delivery = Delivery()
    delivery.batch, delivery.index = batch, 0
    return delivery


async def _settled(batch: Batch) -> None:
    await _first_of(batch).settled()
