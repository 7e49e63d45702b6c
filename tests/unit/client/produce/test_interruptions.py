"""A send that Ctrl-C or a signal handler interrupts, wherever that happens: the producer goes on as if nothing were."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from ottla.base.ids import ZERO_UUID
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.client.produce.accumulator import size_of
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.record import PreparedRecord
from ottla.records import iter_records
from unit.client.interruptions import Interruption
from unit.client.produce.scripted_log import config

INFO = TopicInfo("events", ZERO_UUID, False, (PartitionInfo(0, 1, 0, (1,), (1,)),))
BUFFER_BYTES = 100_000
RECORDS = 8


def send(core: ProducerCore, number: int, kind: str) -> object:
    value = b"%d" % number
    match kind:
        case "keyed":
            return core.accumulator.gather("events", value, value) or offer(core, value, key=value)
        case "headers":
            return offer(core, value, key=value, headers=(("h", value),))
    return offer(core, value)


def offer(core: ProducerCore, value: bytes, key: bytes | None = None, headers: Any = ()) -> object:
    return core.offer(INFO, PreparedRecord("events", value, key, headers, None, None))


def records_of(batch: Batch) -> list[tuple[bytes | None, bytes | None, Any]]:
    """Each record's value, key and headers, aligned as they would be sent."""
    if batch.encoded is not None:
        return [(one.value, one.key, tuple(one.headers)) for one in iter_records(batch.encoded)]
    size = len(batch.values)
    keys = [None] * size if batch.keys is None else batch.keys
    headers = [()] * size if batch.headers is None else [tuple(one) for one in batch.headers]
    return list(zip(batch.values, keys, headers, strict=True))


@pytest.mark.parametrize("kind", ["plain", "keyed", "headers"])
def test_an_interrupted_send_leaves_the_producer_whole(kind: str) -> None:
    room = 61 + 3 * (size_of(b"1", b"1" if kind != "plain" else None, ()) + (10 if kind == "headers" else 0))
    for number in count():
        core = ProducerCore(config(batch_size=room, buffer_memory=BUFFER_BYTES), lambda: None, may_block=True)
        interruption = Interruption(number)
        returned: list[bytes] = []
        for record in range(RECORDS):
            try:
                with interruption:
                    delivery = send(core, record, kind)
            except KeyboardInterrupt:
                assert not core.accumulator.lock._is_owned(), interruption.where  # type: ignore[attr-defined]
            else:
                assert delivery is not None, interruption.where
                returned.append(b"%d" % record)
        accumulator = core.accumulator
        queue = accumulator.topic(INFO).queues[0]
        batches = [*queue.ready, *([queue.open] if queue.open is not None else [])]
        sent = [record for batch in batches for record in records_of(batch)]
        values = [value or b"" for value, _, _ in sent]
        # In order and once; the interrupted one may be among them or not.
        assert values == sorted(set(values)), interruption.where
        assert set(returned) <= set(values), interruption.where
        if kind != "plain":
            assert all(value == key for value, key, _ in sent), interruption.where
        if kind == "headers":
            assert all(headers == (("h", value),) for value, _, headers in sent), interruption.where
        # Nothing keeps a batch from being sent, and all memory is accounted for.
        assert not any(batch.is_encoding for batch in batches), interruption.where
        assert set(accumulator.unfinished) == set(batches), interruption.where
        assert all(records_of(batch) for batch in batches), interruption.where
        reserved = sum(batch.reserved_bytes for batch in batches)
        assert accumulator.free_bytes + reserved == BUFFER_BYTES, interruption.where
        if not interruption.happened:
            return
