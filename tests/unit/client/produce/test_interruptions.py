"""A send that Ctrl-C, a signal handler or another thread interrupts, wherever that happens: the producer goes on as if
nothing were."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from types import ModuleType, TracebackType
from typing import Any, Self

import pytest

from ottla.base.ids import ZERO_UUID
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.client.produce import batch as batch_module
from ottla.client.produce import send_path
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.record import size_of
from ottla.client.produce.send_path import SendPath
from ottla.records import iter_records
from ottla.records.header_sections import header_section
from unit.client.interruptions import Interruption, every_third
from unit.client.produce.scripted_log import config

INFO = TopicInfo("events", ZERO_UUID, False, (PartitionInfo(0, 1, 0, (1,), (1,)),))
BUFFER_BYTES = 100_000
RECORDS = 8
_REUSED_TUPLES = 2000

Row = tuple[bytes | None, bytes | None, bytes | None, int | None]
"""Value, key, headers, and the time if the record came with one: times of today's clock are not compared."""


def plain(_value: bytes) -> dict[str, Any]:
    return {}


def keyed(value: bytes) -> dict[str, Any]:
    return {"key": value}


def headers(value: bytes) -> dict[str, Any]:
    return {"key": value, "headers": [("h", value)]}


def timed(value: bytes) -> dict[str, Any]:
    return {"timestamp": int(value), "partition": 0}


def mixed(value: bytes) -> dict[str, Any]:
    """Columns come one after the other, and values alone among the rest."""
    kinds = [plain, keyed, plain, timed, headers, plain, timed, plain]
    return kinds[int(value) % len(kinds)](value)


KINDS = [plain, keyed, headers, timed, mixed]
Kind = Callable[[bytes], dict[str, Any]]


def row_of(kind: Kind, value: bytes) -> Row:
    parts = kind(value)
    section = header_section(parts["headers"]) if "headers" in parts else None
    return value, parts.get("key"), section, parts.get("timestamp")


def rows_of(batch: Batch) -> list[Row]:
    """The batch's records, aligned as they would be sent."""
    if batch.encoded is not None:
        return [
            (one.value, one.key, header_section(one.headers) if one.headers else None, _own(one.timestamp_ms))
            for one in iter_records(batch.encoded)
        ]
    size = len(batch.values)
    keys = [None] * size if batch.keys is None else batch.keys
    sections = [None] * size if batch.header_sections is None else batch.header_sections
    return list(zip(batch.values, keys, sections, map(_own, batch.timestamps_ms()), strict=True))


def _own(time_ms: int) -> int | None:
    return time_ms if time_ms < RECORDS else None


class Sending:
    """A producer without a broker, whose batches have room for three records or so."""

    def __init__(self, kind: Kind) -> None:
        value, key, section, _ = row_of(kind, b"1")
        room = 61 + 3 * size_of(value, key, section)
        self.core = ProducerCore(config(batch_size=room, buffer_memory=BUFFER_BYTES), lambda: None, may_block=True)
        self.accumulator = self.core.accumulator
        path: SendPath[Delivery | None]
        self.path = path = SendPath(self.core, lambda record: self.core.offer(INFO, record))
        self.send = path.send
        self.queue = self.accumulator.topic(INFO).queues[0]

    def batches(self) -> list[Batch]:
        return [*self.queue.ready, *([self.queue.open] if self.queue.open is not None else [])]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_send_leaves_the_producer_whole(kind: Kind) -> None:
    for number in count():
        sending = Sending(kind)
        accumulator = sending.accumulator
        interruption = Interruption(number)
        returned: list[bytes] = []
        for record in range(RECORDS):
            value = b"%d" % record
            try:
                with interruption:
                    delivery = sending.send("events", value, **kind(value))
            except KeyboardInterrupt:
                assert is_free(accumulator.lock), interruption.where
            else:
                assert delivery is not None, interruption.where
                returned.append(value)
        batches = sending.batches()
        sent = [row for batch in batches for row in rows_of(batch)]
        values = [value or b"" for value, *_ in sent]
        # In order and once; the interrupted one may be among them or not.
        assert values == sorted(set(values)), interruption.where
        assert set(returned) <= set(values), interruption.where
        assert sent == [row_of(kind, value) for value in values], interruption.where
        # Nothing keeps a batch from being sent, and all memory is accounted for.
        assert not any(batch.is_encoding for batch in batches), interruption.where
        assert set(accumulator.unfinished) == set(batches), interruption.where
        assert all(rows_of(batch) for batch in batches), interruption.where
        reserved = sum(batch.reserved_bytes for batch in batches)
        assert accumulator.free_bytes + reserved == BUFFER_BYTES, interruption.where
        if not interruption.happened:
            return


def is_free(lock: Any) -> bool:
    """Whether another thread could have it."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    in_thread(look)
    return found[0]


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Collection:
    """Calls a handler when the garbage collector starts for the n-th time, which is where `__del__` methods run. It
    starts whenever CPython 3.11 allocates an object that it tracks, or right after that in newer versions: compiled
    modules are interrupted there, too, and nowhere else."""

    def __init__(self, number: int, handler: Callable[[], object]) -> None:
        self._left = number
        self._handler = handler
        self._kept: list[tuple[object, ...]] = []
        self.happened = False
        self.where = f"collection {number}"

    def __enter__(self) -> Self:
        # CPython reuses tuples instead of allocating some.
        self._keep(3)
        self._thresholds = gc.get_threshold()
        gc.callbacks.append(self._begin)
        gc.set_threshold(1, 1_000_000, 1_000_000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._begin)

    def _keep(self, count: int) -> None:
        for one in range(count):
            self._kept += (one,), (one, one, one, one)

    def keep_all(self) -> Self:
        self._keep(_REUSED_TUPLES)
        return self

    def _begin(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start" and not self.happened:
            if self._left:
                self._left -= 1
            else:
                self.happened = True
                self._handler()


@pytest.mark.parametrize(
    ("kind", "lines_of"),
    [
        *((kind, ()) for kind in KINDS),
        pytest.param(plain, (send_path, batch_module), id="plain, any line"),
        pytest.param(mixed, (send_path, batch_module), id="mixed, any line"),
    ],
)
@pytest.mark.parametrize("deed", ["closes", "sends", "sends the same"])
def test_what_another_thread_does_to_a_batch_while_one_appends_loses_nothing(
    kind: Kind, deed: str, lines_of: tuple[ModuleType, ...]
) -> None:
    """The sender closes it because it is ripe; a second thread sends to the same partition."""
    for number in every_third():
        if not is_undisturbed_by(deed, kind, lambda handler, number=number: Interruption(number, handler, lines_of)):  # type: ignore[misc]
            return


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deed", ["closes", "sends", "sends the same"])
def test_what_happens_while_garbage_is_collected_loses_nothing(kind: Kind, deed: str) -> None:
    for number in count():
        if not is_undisturbed_by(deed, kind, lambda handler, number=number: Collection(number, handler).keep_all()):  # type: ignore[misc]
            assert number > RECORDS  # at least one in each send
            return


def is_undisturbed_by(
    deed: str, kind: Kind, interrupted_by: Callable[[Callable[[], object]], Interruption | Collection]
) -> bool:
    """Sends some records, one of them while another thread does something. Returns whether that happened."""
    sending = Sending(kind)
    accumulator = sending.accumulator
    others: list[Delivery | None] = []

    def elsewhere() -> None:
        if not accumulator.lock.acquire(blocking=False):
            return  # It would wait.
        try:
            if deed == "sends":
                others.append(sending.send("events", b"9", b"9"))
            elif deed == "sends the same":
                others.append(sending.send("events", b"9", **kind(b"9")))
            elif sending.queue.open is not None:
                accumulator.close(sending.queue.open)
        finally:
            accumulator.lock.release()

    interruption = interrupted_by(partial(in_thread, elsewhere))
    deliveries = []
    for record in range(RECORDS):
        value = b"%d" % record
        with interruption:
            deliveries.append((value, sending.send("events", value, **kind(value))))
    for value, delivery in deliveries:
        assert delivery is not None, interruption.where
        assert rows_of(delivery.batch)[delivery.index] == row_of(kind, value), interruption.where
    batches = sending.batches()
    sent = [row for batch in batches for row in rows_of(batch)]
    assert [row for row in sent if row[0] != b"9"] == [row_of(kind, value) for value, _ in deliveries], (
        interruption.where
    )
    assert sum(row[0] == b"9" for row in sent) == len(others), interruption.where
    reserved = sum(batch.reserved_bytes for batch in batches)
    assert accumulator.free_bytes + reserved == BUFFER_BYTES, interruption.where
    return interruption.happened
