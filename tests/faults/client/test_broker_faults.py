"""Our client while its broker is killed, is slow, or loses connections: nothing acknowledged is lost, nothing is there
twice or out of order, and no record is skipped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from faults.client.traffic import PATIENT, check, seeded, traffic
from faults.load import create_topic, read_all
from ottla import Producer
from ottla.client.errors import BufferFullError
from ottla.testing.broker import Broker
from support.clients.interposer import FETCH, PRODUCE, Interposer, running_interposer
from support.kafka_process import free_port
from support.waiting import wait_until

TOPIC = "numbers"
PARTITIONS = 3
KILLS = int(os.environ.get("OTTLA_BROKER_KILLS", "3"))
CUTS = 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        create_topic(running.bootstrap, TOPIC, partitions=PARTITIONS)
        yield running


@pytest.fixture
def interposer() -> Iterator[Interposer]:
    """In front of a broker of its own, which has the topic."""
    listening = free_port()
    with running_interposer(listening) as between:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{listening}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{between.port}",
        }
        with Broker(overrides=settings):
            create_topic(address(between), TOPIC, partitions=PARTITIONS)
            yield between


def address(interposer: Interposer) -> str:
    return f"127.0.0.1:{interposer.port}"


@pytest.mark.parametrize("end", ["killed", "restarted"])
def test_a_broker_that_comes_back(broker: Broker, end: str) -> None:
    chance = seeded()
    with traffic(broker.bootstrap, TOPIC, PARTITIONS, chance) as (sending, reading):
        for _ in range(KILLS):
            sending.wait_for_more(chance.randrange(50, 1500))
            if end == "killed":
                broker.kill()
                broker.start()
            else:
                broker.restart()
        sending.wait_for_more(500)
        sending.stop()
        assert (sending.failures(), sending.not_taken) == ([], [])
        check(sending, reading, broker.bootstrap)


@pytest.mark.parametrize("how", ["cut", "lost", "torn"])
def test_connections_that_end(interposer: Interposer, how: str) -> None:
    """Between answers, before one, and in the midst of one."""
    chance = seeded()
    # Small fetches, so that there are many answers to tear.
    small = {"max.partition.fetch.bytes": 20_000}
    with traffic(address(interposer), TOPIC, PARTITIONS, chance, consumer=small) as (sending, reading):
        for _ in range(CUTS):
            sending.wait_for_more(chance.randrange(1, 300))
            if how == "cut":
                interposer.cut()
                continue
            act = interposer.lose_answer if how == "lost" else interposer.tear_answer
            act(chance.choice((PRODUCE, FETCH)))
            sending.wait_for_more(1)
        sending.stop()
        assert (sending.failures(), sending.not_taken) == ([], [])
        check(sending, reading, address(interposer))


def test_a_broker_that_takes_longer_than_it_is_waited_for(interposer: Interposer) -> None:
    chance = seeded()
    impatient = {"request.timeout.ms": 200}
    producing = {**impatient, "delivery.timeout.ms": 60_000}
    with traffic(address(interposer), TOPIC, PARTITIONS, chance, producing, impatient) as (sending, reading):
        sending.wait_for_more(100)
        interposer.slow_down(lambda: chance.choice((0.0,) * 20 + (0.1, 0.5)))
        for _ in range(5):
            sending.wait_for_more(chance.randrange(50, 300))
        interposer.slow_down(lambda: 0.0)
        sending.stop()
        assert (sending.failures(), sending.not_taken) == ([], [])
        check(sending, reading, address(interposer))


def test_a_buffer_that_is_full(broker: Broker) -> None:
    """What was not taken is told where it was given, and is nowhere; the rest arrives when the broker goes on."""
    chance = seeded()
    small = {"buffer.memory": 100_000, "max.block.ms": 50}
    with traffic(broker.bootstrap, TOPIC, PARTITIONS, chance, small) as (sending, reading):
        sending.wait_for_more(200)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: len(sending.not_taken) >= 3, "the buffer took everything")
        finally:
            broker.process.send_signal(signal.SIGCONT)
        sending.wait_for_more(500)
        sending.stop()
        assert sending.failures() == []
        assert {type(error) for error in sending.not_taken} == {BufferFullError}
        check(sending, reading, broker.bootstrap)


def test_a_broker_that_stays_away_is_reported_in_time(broker: Broker) -> None:
    """And an order is kept by what arrives when it is back: nothing overtakes what was given up."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 0,
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 3000,
        **PATIENT,
    }
    with Producer(settings) as producer:
        producer.send_and_wait(TOPIC, b"0", partition=0)
        broker.kill()
        given_up = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(1, 20)]
        errors = [delivery.exception(30) for delivery in given_up]
        assert all(isinstance(error, TimeoutError) for error in errors), errors
        broker.start()
        for number in range(20, 40):
            producer.send_and_wait(TOPIC, b"%d" % number, partition=0)
    stored = [int(value) for _, value in read_all(broker.bootstrap, TOPIC)]
    assert stored == [0, *range(20, 40)]
