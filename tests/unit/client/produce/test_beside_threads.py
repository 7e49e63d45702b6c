"""What the loop and a sending thread do to the same batch at the same moment, forced to happen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic

import pytest

from ottla.base.ids import ZERO_UUID
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.client.produce import send_path
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.partitioners import KeyHash, partition_of_key
from ottla.client.produce.send_path import SendPath
from ottla.client.produce.sender import Sender
from ottla.records import iter_records
from unit.client.produce.scripted_log import config


def info(partitions: int) -> TopicInfo:
    return TopicInfo("events", ZERO_UUID, False, tuple(PartitionInfo(n, 1, 0, (1,), (1,)) for n in range(partitions)))


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_stamp_of_a_record_that_comes_too_late_is_not_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is closed after its owner saw room in it, and before the owner noted a new millisecond."""
    core = ProducerCore(config(), lambda: None, may_block=True)
    path: SendPath[object] = SendPath(core, lambda record: core.offer(info(1), record))
    queue = core.accumulator.topic(info(1)).queues[0]
    for _ in range(3):
        path.send("events", b"early")
    batch = queue.open
    assert batch is not None

    def close_meanwhile() -> float:
        monkeypatch.setattr(send_path, "monotonic", monotonic)

        def close() -> None:
            with core.accumulator.lock:
                core.accumulator.close(batch)

        in_thread(close)
        return inf

    monkeypatch.setattr(send_path, "monotonic", close_meanwhile)
    path.send("events", b"late")
    assert batch.count == 3
    assert all(index < batch.count for index, _ in batch.stamps)
    assert [each.value for each in iter_records(core.encoder.encode(batch))] == [b"early"] * 3


def test_a_key_that_was_hashed_for_fewer_partitions_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ProducerCore(config(), lambda: None, may_block=True)
    accumulator = core.accumulator
    topic = accumulator.topic(info(2))
    keys = (b"k%d" % number for number in range(100))
    key = next(each for each in keys if partition_of_key(each, 2) != partition_of_key(each, 3))

    def learn_meanwhile(hashed: bytes, partition_count: int) -> int:
        monkeypatch.setattr(KeyHash, "function", staticmethod(partition_of_key))
        in_thread(lambda: accumulator.topic(info(3)))
        return partition_of_key(hashed, partition_count)

    monkeypatch.setattr(KeyHash, "function", staticmethod(learn_meanwhile))
    topic.place(key)
    assert topic.places.get(key) is None
    topic.place(key)
    assert topic.places[key] == partition_of_key(key, 3)


def test_a_batch_that_a_thread_encodes_is_not_taken_by_the_loop() -> None:
    """It was filled and closed by a thread after the loop saw that it is due."""
    core = ProducerCore(config(), lambda: None, may_block=True)
    path: SendPath[object] = SendPath(core, lambda record: core.offer(info(1), record))
    queue = core.accumulator.topic(info(1)).queues[0]
    path.send("events", b"value")
    batch = queue.open
    assert batch is not None
    with core.accumulator.lock:
        core.accumulator.close(batch)
        batch.is_encoding = True
    sender = Sender.__new__(Sender)  # nothing of it is needed but the step that takes batches
    sender._accumulator, sender._encoder, sender._identity = core.accumulator, core.encoder, None
    assert sender._next_of(queue, None) is None
    assert batch.encoded is None
    batch.is_encoding = False
    assert sender._next_of(queue, None) is batch
