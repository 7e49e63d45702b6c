"""The exactly-once sink on Apache Kafka: rows, and what happens after each place where a driver can die."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from compat.spark.sides import OURS_ON_KAFKA, Side, on
from ottla.spark.exactly_once.decisions import Proposal
from ottla.spark.exactly_once.driver import settle
from ottla.spark.exactly_once.errors import ExactlyOnceError, LostTransactionsError
from support.clients.dialect import Record
from support.exactly_once.sink import Sink, new_sink
from support.waiting import wait_until


def wait_for(sink: Sink, values: Iterable[str]) -> None:
    """Kafka answers a commit before its markers are written."""
    wanted = sorted(values)
    wait_until(lambda: len(sink.visible()) >= len(wanted), f"{wanted} in {sink.topic}")
    assert sorted(sink.visible()) == wanted


@on(*OURS_ON_KAFKA)
def test_rows_of_batches_and_streams(side: Side, topic: str, tmp_path: Path) -> None:
    source = side.create(f"{topic}-source", 2)
    side.create(topic, 1)
    exactly_once = {"topic": topic, "exactlyOnce": "true"}
    side.write(exactly_once, "value string", *[(str(number),) for number in range(10)])
    sink = Sink(side.bootstrap, topic)
    wait_for(sink, map(str, range(10)))
    for begin in (10, 15):
        side.produce(source, *(Record(value=b"%d" % number) for number in range(begin, begin + 5)))
        read = {"subscribe": source, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
        side.copy(read, ["value"], exactly_once, tmp_path)
    wait_for(sink, map(str, range(20)))
    assert not any(one.startswith("ottla-spark") for one in sink.all_open())


@on(*OURS_ON_KAFKA)
def test_drivers_that_die_and_come_late(side: Side, topic: str) -> None:
    sink = new_sink(side.bootstrap, topic)
    first, second = sink.driver(), sink.driver()
    sink.report("r0", 0, 0, "of a driver that died before its record")
    first._record(Proposal.of([sink.report("r1", 0, 0, "a"), sink.report("r1", 0, 0, "b")]))
    assert sink.visible() == []
    second.commit([sink.report("r2", None, 0, None)])
    wait_for(sink, "ab")
    assert sink.open() == []
    second.commit([sink.report("r2", 0, 1, "c")])
    late = [sink.report("r1", 0, 1, "not this")]
    with pytest.raises(ExactlyOnceError):
        first.commit(late)
    first.abort(late)
    first.close()
    lost = [sink.report("r2", 0, 2, "timed out"), sink.report("r2", 0, 2, "timed out, too")]
    sink.time_out(*lost)
    with pytest.raises(LostTransactionsError, match="restart the query to write it again"):
        second.commit(lost)
    second.close()
    settle(sink.options, [sink.report("r3", 2, 2, "d")], commit=True)
    wait_for(sink, "abcd")
    assert sink.open() == []
