"""How batches fill that a thread appends to without the lock: never too much, and not much too little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import ZERO_UUID
from ottla.client.callbacks import Callbacks
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch
from ottla.client.produce.record import RECORD_OVERHEAD_BYTES, PreparedRecord, size_of
from ottla.records.layout import HEADER_SIZE
from unit.client.produce.scripted_log import config

BATCH_BYTES = 4000
BUFFER_BYTES = 1_000_000
INFO = TopicInfo("events", ZERO_UUID, False, (PartitionInfo(0, 1, 0, (1,), (1,)),))


def filled(values: list[bytes]) -> tuple[Accumulator, list[Batch]]:
    """The batches that the values come to, put in as a producer does it."""
    accumulator = Accumulator(
        config(batch_size=BATCH_BYTES, buffer_memory=BUFFER_BYTES),
        lambda: None,
        Callbacks(takes_coroutines=False),
    )
    topic = accumulator.topic(INFO)
    for value in values:
        batch = topic.sticky
        if batch is not None and len(value) <= batch.record_bytes and batch.count < batch.bare_until:
            batch.count += 1
            batch.cells.append(value)
        else:
            record = PreparedRecord("events", value, None, None, None, None, size_of(value, None, None))
            assert accumulator.append(topic, None, record) is not None
    if topic.queues[0].open is not None:
        accumulator.close(topic.queues[0].open)
    return accumulator, list(topic.queues[0].ready)


def bytes_in(batch: Batch) -> int:
    return HEADER_SIZE + sum(len(value or b"") + RECORD_OVERHEAD_BYTES for value in batch.values)


@given(st.lists(st.integers(0, 5000) | st.integers(0, 30) | st.just(100), max_size=300).map(lambda n: [*n, *n[:50]]))
def test_a_batch_takes_what_it_may_and_no_more(sizes: list[int]) -> None:
    values = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    accumulator, batches = filled(values)
    assert [value for batch in batches for value in batch.values] == values
    for batch in batches:
        assert bytes_in(batch) <= max(BATCH_BYTES, HEADER_SIZE + RECORD_OVERHEAD_BYTES + len(batch.values[0] or b""))
        assert bytes_in(batch) <= batch.reserved_bytes
    assert accumulator.free_bytes == BUFFER_BYTES - sum(batch.reserved_bytes for batch in batches)


@given(st.integers(0, 1500), st.integers(1, 300))
def test_records_of_one_size_fill_a_batch(size: int, count: int) -> None:
    _, batches = filled([bytes(size)] * count)
    assert all(bytes_in(batch) + size + RECORD_OVERHEAD_BYTES > BATCH_BYTES for batch in batches[:-1])


def test_a_long_record_among_short_ones_does_not_leave_the_rest_empty() -> None:
    _, batches = filled([bytes(1000), *[bytes(10)] * 300])
    assert bytes_in(batches[0]) > 0.9 * BATCH_BYTES
