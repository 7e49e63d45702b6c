"""What `send` is given: right, or refused by the name of the parameter, before other records can suffer from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ottla import AsyncProducer
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from support.clients.scripted_broker import ScriptedBroker
from unit.client.produce.scripted_log import Log, settings
from unit.client.produce.test_partitioners import partitioner
from unit.client.test_cluster import run

LATEST_MS = 2**63 - 1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"timestamp": 2**63}, ValueError, "timestamp must be between 0 and 9223372036854775807"),
        ({"timestamp": 2**70}, ValueError, "timestamp must be between"),
        ({"timestamp": -1}, ValueError, "timestamp must be between"),
        ({"timestamp": 1.5}, TypeError, "timestamp must be an int, not float"),
        ({"timestamp": True}, TypeError, "timestamp must be an int, not bool"),
        ({"timestamp": "now"}, TypeError, "timestamp must be an int, not str"),
        ({"partition": -1}, ValueError, "partition must be 0 or more, not -1"),
        ({"partition": "0"}, TypeError, "partition must be an int, not str"),
        ({"partition": 2.0}, TypeError, "partition must be an int, not float"),
        ({"partition": 2}, ClientError, "partitions 0 to 1, not 2"),
        (
            {"value": bytes(2_000_000)},
            RecordTooLargeError,
            "2000014 bytes for topic 'events' is above max.request.size",
        ),
        ({"topic": ["events"]}, TypeError, "topic must be a str, not list"),
        ({"topic": b"events"}, TypeError, "topic must be a str, not bytes"),
        ({"topic": 5}, TypeError, "topic must be a str, not int"),
        ({"topic": None}, TypeError, "topic must be a str, not NoneType"),
        ({"headers": 5}, TypeError, "headers must be a mapping, or an iterable of pairs, not int"),
        ({"headers": "ab"}, TypeError, "headers must be a mapping, or an iterable of pairs, not str"),
        ({"headers": [("\ud800", b"x")]}, SerializationError, "surrogates not allowed"),
        ({"headers": [(b"a", b"x")]}, SerializationError, "the name of a header is a text, not bytes"),
    ],
)
def test_what_is_wrong_is_refused_and_its_neighbours_arrive(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    async def scenario() -> None:
        log = Log()
        two = ScriptedBroker(log, {"events": 2})
        async with two as broker, AsyncProducer(settings(broker, linger_ms=20)) as producer:
            before = await producer.send("events", b"before", partition=0)
            with pytest.raises(error, match=words):
                await producer.send(**{"topic": "events", "value": b"wrong", **given})
            after = await producer.send("events", b"after", partition=0)
            assert [(await one).offset for one in (before, after)] == [0, 1]
        assert log.values() == [b"before", b"after"]

    run(scenario)


def test_numbers_of_numpy_are_numbers() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log, {"events": 2}) as broker, AsyncProducer(settings(broker)) as producer:
            number: Any = np.int64(1)
            sent = await producer.send_and_wait("events", b"x", timestamp=number + 5, partition=number)
            assert sent == ("events", 1, 0, 6)
            assert {type(one) for one in sent[1:]} == {int}
            last = await producer.send_and_wait("events", b"x", timestamp=LATEST_MS, partition=np.uint8(1))  # type: ignore[arg-type]
            assert last.timestamp == LATEST_MS
        assert [one.timestamp_ms for one in log.records(1)] == [6, LATEST_MS]

    run(scenario)
    chosen: Any = {"partitioner": lambda *_: np.int32(2)}
    assert partitioner(3, **chosen).choose(b"", b"") == 2
    wrong: Any = {"partitioner": lambda *_: "2"}
    with pytest.raises(TypeError, match="must return an int, not '2'"):
        partitioner(3, **wrong).choose(b"", b"")
