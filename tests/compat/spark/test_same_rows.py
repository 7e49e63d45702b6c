"""The same query by both connectors: the same rows, or a refusal by both; and one goes on where the other was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

from compat.spark.both_connectors import CONNECTORS, OURS, SPARKS, Row, Spark
from compat.spark.sides import Side
from spark_program import QueryFailedError
from support.clients.dialect import CODECS, WAIT_S, ProducerSettings, Record
from support.clients.expectations import START_MS, VARIED, numbered
from support.waiting import wait_until

PLAIN, COMPACTED, SHORTENED = "same-plain", "same-compacted", "same-shortened"
ON_KAFKA = pytest.mark.parametrize("bootstrap", ["kafka-4.3.1"], indirect=True)


@pytest.fixture(scope="module")
def filled(bootstrap: str, spark: Spark) -> dict[str, Side]:
    """Both connectors, and topics with all that a topic can have."""
    sides = {connector: Side(connector, bootstrap, spark) for connector in CONNECTORS}
    side = sides[SPARKS]
    side.create(PLAIN, 3)
    for number, codec in enumerate(CODECS):
        partition = number % 3
        records = [Record(each.value, each.key, each.headers, each.timestamp_ms, partition) for each in VARIED]
        side.confluent.produce(PLAIN, [*records, *numbered(200, partition, 10 * number)], ProducerSettings(codec))
    side.create(SHORTENED, 2)
    side.produce(SHORTENED, *numbered(50, 0), *numbered(50, 1))
    with side.confluent.admin() as admin:
        admin.delete_records(SHORTENED, 0, 20)
    side.create(
        COMPACTED, config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    )
    for turn in range(3):
        time_ms = START_MS + turn * 1000
        records = [Record(b"%d" % turn, b"key %d" % number, (), time_ms) for number in range(0, 20, turn + 1)]
        side.produce(COMPACTED, *records)
    side.produce(COMPACTED, Record(b"end", b"end", (), START_MS + 9000))
    wait_until(lambda: side.seen(COMPACTED, 1)[0].offset > 0, "nothing was compacted")
    return sides


def offsets(topic: str, *each: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(each)}})


QUERIES: Mapping[str, dict[str, str]] = {
    "everything": {"subscribePattern": "same-.*", "includeHeaders": "true"},
    "several topics": {"subscribe": f"{PLAIN},{SHORTENED}"},
    "some partitions": {"assign": json.dumps({PLAIN: [0, 2], SHORTENED: [1]})},
    "names of options in other letters": {"SUBSCRIBE": PLAIN, "StartingOffsets": "EARLIEST", "endingoffsets": "Latest"},
    "from offsets": {"subscribe": PLAIN, "startingOffsets": offsets(PLAIN, 7, -2, 150)},
    "to offsets": {"subscribe": PLAIN, "endingOffsets": offsets(PLAIN, 3, -1, 0)},
    "in the middle of batches": {
        "subscribe": PLAIN,
        "startingOffsets": offsets(PLAIN, 100, 100, 100),
        "endingOffsets": offsets(PLAIN, 103, 101, 100),
    },
    "gaps of compaction": {
        "subscribe": COMPACTED,
        "startingOffsets": offsets(COMPACTED, 1),
        "endingOffsets": offsets(COMPACTED, 33),
    },
    "only a gap": {
        "subscribe": COMPACTED,
        "startingOffsets": offsets(COMPACTED, 0),
        "endingOffsets": offsets(COMPACTED, 1),
    },
    "deleted and let go": {
        "subscribe": SHORTENED,
        "startingOffsets": offsets(SHORTENED, 5, 5),
        "failOnDataLoss": "false",
    },
    "beyond the end and let go": {
        "subscribe": SHORTENED,
        "endingOffsets": offsets(SHORTENED, 70, 30),
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "2000",  # which Spark's own waits for what never comes
    },
    "from a time": {"subscribe": PLAIN, "startingTimestamp": str(START_MS + 150)},
    "to a time": {"subscribe": PLAIN, "endingTimestamp": str(START_MS + 4)},
    "between times": {
        "subscribe": COMPACTED,
        "startingTimestamp": str(START_MS + 500),
        "endingTimestamp": str(START_MS + 1500),
    },
    "times of partitions": {
        "subscribe": SHORTENED,
        "startingOffsetsByTimestamp": offsets(SHORTENED, START_MS + 40, START_MS),
        "endingOffsetsByTimestamp": offsets(SHORTENED, START_MS + 45, START_MS + 3),
    },
    "no record is as late": {
        "subscribe": PLAIN,
        "startingTimestamp": str(START_MS + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "an offset counts more than a time": {
        "subscribe": SHORTENED,
        "startingOffsets": "earliest",
        "startingTimestamp": str(START_MS + 45),
    },
    "many tasks": {"subscribe": f"{PLAIN},{COMPACTED}", "minPartitions": "9"},
    "settings of the consumer": {
        "subscribe": PLAIN,
        "kafka.max.poll.records": "17",
        "kafka.max.partition.fetch.bytes": "600",
        "kafka.group.id": "same-rows",
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "same",
    },
    "settings of the connector": {
        "subscribe": PLAIN,
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "2",
        "groupIdPrefix": "same-rows",
    },
}


@pytest.mark.parametrize("query", QUERIES)
def test_the_same_rows(filled: dict[str, Side], query: str) -> None:
    theirs = filled[SPARKS].read(QUERIES[query])
    assert filled[OURS].read(QUERIES[query]) == theirs
    assert bool(theirs) == (query not in ("only a gap", "no record is as late"))


REFUSED: Mapping[str, dict[str, str]] = {
    "no topics": {},
    "two ways to say which": {"subscribe": PLAIN, "assign": json.dumps({PLAIN: [0]})},
    "an empty list": {"subscribe": ""},
    "no list of partitions": {"assign": f"{PLAIN}:0"},
    "from the end": {"subscribe": PLAIN, "startingOffsets": "latest"},
    "to the beginning": {"subscribe": PLAIN, "endingOffsets": "earliest"},
    "an end of a partition to begin with": {"subscribe": PLAIN, "startingOffsets": offsets(PLAIN, -1, 0, 0)},
    "a beginning of a partition to end with": {"subscribe": PLAIN, "endingOffsets": offsets(PLAIN, -2, 0, 0)},
    "offsets of some partitions": {"subscribe": PLAIN, "startingOffsets": offsets(PLAIN, 0, 0)},
    "from beyond the end": {"subscribe": PLAIN, "startingOffsets": offsets(PLAIN, 0, 0, 900)},
    "offsets of other topics": {"subscribe": PLAIN, "startingOffsets": offsets(COMPACTED, 0)},
    "no JSON": {"subscribe": PLAIN, "startingOffsets": "from the first"},
    "a time that is none": {"subscribe": PLAIN, "startingTimestamp": "yesterday"},
    "no record is as late": {"subscribe": PLAIN, "startingTimestamp": str(START_MS + 10**9)},
    "no tasks": {"subscribe": PLAIN, "minPartitions": "0"},
    "deleted offsets": {"subscribe": SHORTENED, "startingOffsets": offsets(SHORTENED, 5, 5)},
    "a reset": {"subscribe": PLAIN, "kafka.auto.offset.reset": "earliest"},
    "a deserializer": {"subscribe": PLAIN, "kafka.value.deserializer": "any"},
    "commits": {"subscribe": PLAIN, "kafka.enable.auto.commit": "true"},
    "interceptors": {"subscribe": PLAIN, "kafka.interceptor.classes": "any"},
    "a topic that is not there": {"subscribe": "same-missing"},
}


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("query", REFUSED)
def test_refused_by_both(filled: dict[str, Side], query: str, connector: str) -> None:
    with pytest.raises(QueryFailedError):
        filled[connector].count(REFUSED[query])


@pytest.mark.parametrize(("first", "then"), [(SPARKS, OURS), (OURS, SPARKS)])
def test_one_goes_on_where_the_other_was(
    bootstrap: str, spark: Spark, topic: str, tmp_path: Path, first: str, then: str
) -> None:
    before, after = (Side(connector, bootstrap, spark) for connector in (first, then))
    query = {"subscribe": topic, "startingOffsets": "earliest"}
    before.create(topic, 2)
    before.produce(topic, *numbered(4, 0), *numbered(2, 1))
    assert before.stream(query, tmp_path).rows == before.seen(topic, 6, (0, 1))
    before.produce(topic, *numbered(3, 0, 4))
    assert [(row.partition, row.offset) for row in after.stream(query, tmp_path).rows] == [(0, 4), (0, 5), (0, 6)]


@ON_KAFKA
def test_transactions(bootstrap: str, spark: Spark, topic: str, tmp_path: Path) -> None:
    """Markers, and records of transactions that were aborted, leave gaps."""
    sides = [Side(connector, bootstrap, spark) for connector in CONNECTORS]
    sides[0].create(topic)
    _transact(bootstrap, topic)
    for isolation, values in {
        "read_committed": [b"plain", b"0", b"1", b"4", b"5"],
        "read_uncommitted": [b"plain", *(b"%d" % number for number in range(8))],
    }.items():
        query = {"subscribe": topic, "kafka.isolation.level": isolation, "startingOffsets": "earliest"}
        theirs, ours = (side.read(query) for side in sides)
        assert [row.value for row in theirs] == values
        assert ours == theirs
        streamed = [side.stream(query, tmp_path / isolation / side.connector) for side in sides]
        assert [each.rows for each in streamed] == [theirs, theirs]
        assert streamed[0].end == streamed[1].end


def _transact(bootstrap: str, topic: str) -> None:
    """Values in pairs, every other one aborted; the last thing in the log is a marker."""
    plain = ConfluentProducer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"plain")
    assert plain.flush(WAIT_S) == 0
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    for number in range(0, 8, 2):
        producer.begin_transaction()
        for value in (number, number + 1):
            producer.produce(topic, b"%d" % value)
        assert producer.flush(WAIT_S) == 0
        if number % 4:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)


def test_what_one_wrote_is_what_the_other_reads(bootstrap: str, spark: Spark, topic: str) -> None:
    sides = {connector: Side(connector, bootstrap, spark) for connector in CONNECTORS}
    schema = "key binary, value binary, partition int, headers array<struct<key: string, value: binary>>"
    rows = [(b"k%d" % n, None if n % 5 == 0 else b"v%d" % n, n % 3, [("n", b"%d" % n)] * (n % 4)) for n in range(60)]
    written: list[list[Row]] = []
    for connector in CONNECTORS:
        sides[connector].create(f"{topic}-{connector}", 3)
        sides[connector].write({"topic": f"{topic}-{connector}", "kafka.compression.type": "lz4"}, schema, *rows)
    for writer in CONNECTORS:
        query = {"subscribe": f"{topic}-{writer}", "includeHeaders": "true"}
        theirs, ours = (sides[reader].read(query) for reader in CONNECTORS)
        assert ours == theirs
        written.append(theirs)
    contents = [sorted((row.partition, row.key, row.value, row.headers) for row in each) for each in written]
    assert contents[0] == contents[1]
