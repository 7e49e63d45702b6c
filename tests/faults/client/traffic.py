"""A producer and a consumer of ours that go on while something happens; and afterwards, what must be true.

Every number is sent once, to a partition that chance chooses. Whatever happened meanwhile: a partition's numbers are in
the order in which they were sent, none is there twice, every one that was acknowledged is there, at the offset that was
told; and the consumer has seen each offset once, from the first to the last, with what is stored there.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from faults.load import WAIT_S, read_all
from ottla import Consumer, Producer, TopicPartition
from ottla.client.errors import OttlaError
from ottla.client.produce.delivery import Delivery
from support.waiting import wait_until

_logger = logging.getLogger(__name__)


def seeded() -> random.Random:
    """Chance by OTTLA_SEED, or by a seed of its own, which the log of a test that fails shows."""
    seed = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    _logger.warning("OTTLA_SEED=%d", seed)
    return random.Random(seed)


PATIENT = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}
"""Tries again soon: a test has not much time."""


class Sending:
    """A thread that sends numbers."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        chance: random.Random,
        settings: Mapping[str, Any],
        pause_s: float = 0.001,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.deliveries: dict[int, list[tuple[int, Delivery]]] = {index: [] for index in range(partitions)}
        """By partition: the numbers that were taken, in order, with what became of each."""
        self.not_taken: list[OttlaError] = []
        """Why a number was refused where it was given."""
        self._chance = random.Random(chance.random())
        self._pause_s = pause_s
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **PATIENT, **settings})
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sending")
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                for _ in range(self._chance.randrange(1, 60)):
                    self._send(number)
                    number += 1
                self._stop.wait(self._pause_s)
        except BaseException as error:
            self._failure = error

    def _send(self, number: int) -> None:
        partition = self._chance.randrange(self.partitions)
        padding = b" " * self._chance.choice((0, 0, 0, 200, 2000))
        try:
            delivery = self._producer.send(self.topic, b"%d%s" % (number, padding), partition=partition)
        except OttlaError as error:
            self.not_taken.append(error)
        else:
            self.deliveries[partition].append((number, delivery))

    @property
    def acknowledged(self) -> int:
        """How many have arrived, up to now; those behind one that has not are not counted."""
        self.check()
        return sum(self._arrived(list(sent)) for sent in self.deliveries.values())

    @staticmethod
    def _arrived(sent: list[tuple[int, Delivery]]) -> int:
        """They arrive in order: the first that is under way is found by halving."""
        low, high = 0, len(sent)
        while low < high:
            middle = (low + high) // 2
            if sent[middle][1].done():
                low = middle + 1
            else:
                high = middle
        return low

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait_for_more(self, count: int) -> None:
        """Until that many more have arrived."""
        wanted = self.acknowledged + count
        wait_until(lambda: self.acknowledged >= wanted, f"{count} more acknowledgements")

    def stop(self, timeout_s: float = WAIT_S) -> None:
        """No more numbers; all that were taken have their outcome then."""
        self._stop.set()
        self._thread.join()
        self.check()
        self._producer.flush(timeout_s)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close(1.0)

    def outcomes(self, partition: int) -> list[tuple[int, int | None]]:
        """The numbers of a partition, in the order in which they were sent, each with its offset; None: it failed."""
        return [
            (number, None if delivery.exception(0) is not None else delivery.result(0).offset)
            for number, delivery in self.deliveries[partition]
        ]

    def failures(self) -> list[BaseException]:
        every = [delivery.exception(0) for sent in self.deliveries.values() for _, delivery in sent]
        return [error for error in every if error is not None]


class Reading:
    """A thread that consumes all partitions, from their beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, Any]) -> None:
        self.seen: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(partitions)}
        """By partition: offsets and values as they came."""
        own = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "fetch.max.wait.ms": 100}
        self._consumer = Consumer({**own, **PATIENT, **settings})
        self._consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reading")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for record in self._consumer.poll(0.05):
                    self.seen[record.partition].append((record.offset, record.value or b""))
        except BaseException as error:
            self._failure = error

    def wait_for(self, stored: Mapping[int, list[tuple[int, bytes]]]) -> None:
        """Until as much has come of each partition as is stored."""

        def all_came() -> bool:
            if self._failure is not None:
                raise self._failure
            return all(len(self.seen[index]) >= len(records) for index, records in stored.items())

        wait_until(all_came, "the stored records at the consumer")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close(1.0)


@contextmanager
def traffic(
    bootstrap: str,
    topic: str,
    partitions: int,
    chance: random.Random,
    producer: Mapping[str, Any] | None = None,
    consumer: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Sending, Reading]]:
    sending = Sending(bootstrap, topic, partitions, chance, producer or {})
    try:
        reading = Reading(bootstrap, topic, partitions, consumer or {})
        try:
            yield sending, reading
        finally:
            reading.close()
    finally:
        sending.close()


def check(sending: Sending, reading: Reading, bootstrap: str) -> None:
    """Of traffic that has stopped: what is stored, as another client tells, is what must be there."""
    stored = {index: read_all(bootstrap, sending.topic, index) for index in range(sending.partitions)}
    for index, records in stored.items():
        check_partition(sending.outcomes(index), records, f"{sending.topic}-{index}")
    reading.wait_for(stored)
    for index, records in stored.items():
        assert reading.seen[index] == records, f"{sending.topic}-{index} was read otherwise than it is stored"


def check_partition(outcomes: list[tuple[int, int | None]], stored: list[tuple[int, bytes]], where: str) -> None:
    """Each acknowledged number is there once, where it was said to be, and all are in the order of sending."""
    numbers = [int(value) for _, value in stored]
    twice = [number for number, following in pairwise(numbers) if following <= number]
    assert not twice, f"{where}: behind {twice[:5]} comes what was sent before, or the same again"
    assert [offset for offset, _ in stored] == list(range(len(stored))), f"{where} has gaps"
    by_number = dict(zip(numbers, range(len(numbers)), strict=True))
    for number, offset in outcomes:
        if offset is None:
            continue
        assert number in by_number, f"{where}: {number} was acknowledged, at {offset}, and is not there"
        # A batch that was sent twice can be acknowledged as one that is there already, without a word where.
        if offset >= 0:
            assert by_number[number] == offset, f"{where}: {number} was said to be at {offset}, not {by_number[number]}"
    sent = {number for number, _ in outcomes}
    assert set(numbers) <= sent, f"{where} has what nobody sent: {sorted(set(numbers) - sent)[:5]}"
