"""A stream as Spark asks about it, without Spark: offsets, limits, partitions, progress. With Spark: tests/spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from ottla.base.ids import TopicPartition
from ottla.spark.columns import ReadColumns, read_schema
from ottla.spark.data_loss import DataLossError
from ottla.spark.offsets import JsonOffsets, ids_from_json
from ottla.spark.options import ReadOptions
from ottla.spark.stream import OttlaStreamReader, StreamDriver, _ProgressGroup
from ottla.spark.topics import MissingTopicError
from ottla.testing.broker import Broker
from ottla.testing.manual_clock import ManualClock
from support.topic_data import TopicData
from support.waiting import wait_until

EVERYTHING = ReadAllAvailable()
COLUMNS = ReadColumns.of(read_schema(include_headers=False))


class Streams:
    """Readers over one topic, stopped at the end."""

    def __init__(self, data: TopicData) -> None:
        self._data = data
        self._made: list[OttlaStreamReader] = []

    def options(self, **given: str) -> ReadOptions:
        usual = {
            "kafka.bootstrap.servers": self._data.bootstrap,
            "startingOffsets": "earliest",
            "fetchOffset.numRetries": "1",
            "commitGroup": f"group-{self._data.name}",
        }
        selection = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": self._data.name}
        return ReadOptions.parse({**usual, **selection, **given})

    def reader(self, **given: str) -> OttlaStreamReader:
        reader = OttlaStreamReader(self.options(**given), COLUMNS)
        self._made.append(reader)
        return reader

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def data(ottla_broker: Broker) -> TopicData:
    return TopicData(ottla_broker.bootstrap, partitions=2)


@pytest.fixture
def streams(data: TopicData) -> Iterator[Streams]:
    made = Streams(data)
    yield made
    made.stop()


def bare(offsets: JsonOffsets) -> JsonOffsets:
    """Without the ids of topics."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}


def ranges(reader: OttlaStreamReader, start: JsonOffsets, end: JsonOffsets) -> list[tuple[int, int, int]]:
    spans = [partition.span for partition in reader.partitions(start, end)]
    return [(span.partition, span.start, span.until) for span in spans]


# Where it begins.


def test_a_stream_begins_at_its_starting_offsets(data: TopicData, streams: Streams) -> None:
    data.send(range(3))
    data.delete_before(1)
    assert bare(streams.reader().initialOffset()) == {data.name: {"0": 1, "1": 0}}
    assert bare(streams.reader(startingOffsets="latest").initialOffset()) == {data.name: {"0": 3, "1": 0}}
    told = f'{{"{data.name}":{{"0":2,"1":-1}}}}'
    assert bare(streams.reader(startingOffsets=told).initialOffset()) == {data.name: {"0": 2, "1": 0}}


def test_a_stream_begins_in_one_place_however_often_it_is_asked(data: TopicData, streams: Streams) -> None:
    data.send(range(3))
    reader = streams.reader(startingOffsets="latest")
    start = reader.initialOffset()
    data.send(range(5))
    assert reader.initialOffset() == start
    first_end = reader.latestOffset(start, EVERYTHING)
    assert ranges(reader, reader.initialOffset(), first_end) == []
    assert ranges(reader, first_end, reader.latestOffset(first_end, EVERYTHING)) != []


def test_a_query_that_was_ended_in_its_first_batch_starts_over(data: TopicData, streams: Streams) -> None:
    """Of that batch, the checkpoint has the end and not the start."""
    data.send(range(3))
    ended = streams.reader(startingOffsets="latest")
    end = ended.latestOffset(ended.initialOffset(), EVERYTHING)
    data.send(range(5))
    restarted = streams.reader(startingOffsets="latest")
    assert ranges(restarted, restarted.initialOffset(), end) == []


def test_what_a_query_that_begins_at_the_end_fails_to_read_first_is_read_by_the_next(
    data: TopicData, streams: Streams
) -> None:
    data.send(range(3))
    failing = streams.reader(startingOffsets="latest")
    start = failing.initialOffset()
    data.send(range(3, 5))
    end = failing.latestOffset(start, EVERYTHING)
    assert failing.partitions(start, end) == []

    next_one = streams.reader(startingOffsets="latest")  # from a checkpoint with the end of that batch, as it failed
    assert next_one.partitions(next_one.initialOffset(), end) == []
    after = next_one.latestOffset(end, EVERYTHING)
    assert [(one.span.start, one.span.until) for one in next_one.partitions(end, after)] == [(3, 5)]
    assert failing.latestOffset(end, EVERYTHING) == after  # as if it had gone on


def test_a_stream_begins_only_with_topics_that_are_there(streams: Streams) -> None:
    with pytest.raises(MissingTopicError, match="topic 'nowhere' does not exist"):
        streams.reader(subscribe="nowhere").initialOffset()


def test_a_pattern_that_matches_nothing_yet_reads_nothing_yet(data: TopicData, streams: Streams) -> None:
    reader = streams.reader(subscribePattern=f"{data.name}-later")
    start = reader.initialOffset()
    assert start == reader.latestOffset(start, EVERYTHING) == {}
    assert reader.reportLatestOffset() is None
    later = TopicData(data.bootstrap, f"{data.name}-later")
    later.send(range(3))
    end = reader.latestOffset(start, EVERYTHING)
    assert bare(end) == {later.name: {"0": 3}}
    assert ranges(reader, start, end) == [(0, 0, 3)]


# What it reads next.


def test_all_there_is_without_a_limit(data: TopicData, streams: Streams) -> None:
    reader = streams.reader()
    assert reader.getDefaultReadLimit() == EVERYTHING
    start = reader.initialOffset()
    assert reader.latestOffset(start, EVERYTHING) == start
    data.send(range(5))
    end = reader.latestOffset(start, EVERYTHING)
    assert bare(end) == {data.name: {"0": 5, "1": 0}}
    assert ranges(reader, start, end) == [(0, 0, 5)]


def test_no_more_than_the_limit_in_proportion(data: TopicData, streams: Streams) -> None:
    data.send(range(30))
    data.send(range(10), partition=1)
    reader = streams.reader(maxOffsetsPerTrigger="8")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    assert bare(reader.latestOffset(reader.initialOffset(), limit)) == {data.name: {"0": 6, "1": 2}}
    assert reader.reportLatestOffset() == {data.name: {"0": 30, "1": 10}}
    # What Spark wants for Trigger.Once.
    assert bare(reader.latestOffset(reader.initialOffset(), EVERYTHING)) == {data.name: {"0": 30, "1": 10}}


def test_a_new_partition_counts_in_the_limit_from_its_beginning(data: TopicData, streams: Streams) -> None:
    data.send(range(10))
    reader = streams.reader(maxOffsetsPerTrigger="10")
    start = {data.name: {"0": 0}}
    data.send(range(10), partition=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert bare(end) == {data.name: {"0": 5, "1": 5}}
    assert ranges(reader, start, end) == [(0, 0, 5), (1, 0, 5)]


def test_too_little_is_waited_for_but_not_too_long(data: TopicData, streams: Streams) -> None:
    clock = ManualClock()
    options = streams.options(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12", maxTriggerDelay="60s")
    driver = StreamDriver(options, clock.monotonic_s)
    zero, one = data.partition(0), data.partition(1)
    try:
        data.send(range(3))
        start = {zero: 0, one: 0}
        first = driver.next_end(start, is_limited=True)
        assert first == {zero: 3, one: 0}  # the first batch waits for nothing
        data.send(range(9))
        assert driver.next_end(first, is_limited=True) == first
        assert driver.next_end(first, is_limited=False) == {zero: 12, one: 0}
        data.send(range(7))
        assert driver.next_end(first, is_limited=True) == {zero: 15, one: 0}  # 16 are enough, 12 are the most
        assert driver.next_end({zero: 15, one: 0}, is_limited=True) == {zero: 15, one: 0}
        clock.advance_ms(60_000)
        assert driver.next_end({zero: 15, one: 0}, is_limited=True) == {zero: 19, one: 0}
    finally:
        driver.close()


def test_only_the_least_is_a_limit_too(streams: Streams) -> None:
    assert streams.reader(minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)


def test_available_now_ends_with_what_was_there(data: TopicData, streams: Streams) -> None:
    data.send(range(10))
    reader = streams.reader(maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    limit: ReadLimit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    ends = [reader.initialOffset()]
    for _ in range(4):
        ends.append(reader.latestOffset(ends[-1], limit))
        data.send(["later"])
    # The last two are fewer than it would wait for otherwise.
    assert [end[data.name]["0"] for end in ends] == [0, 4, 8, 10, 10]


def test_large_partitions_are_split(data: TopicData, streams: Streams) -> None:
    data.send(range(10))
    reader = streams.reader(minPartitions="3")
    start, end = {data.name: {"0": 0, "1": 0}}, {data.name: {"0": 9, "1": 0}}
    assert ranges(reader, start, end) == [(0, 0, 3), (0, 3, 6), (0, 6, 9)]


# What is gone.


def test_partitions_that_come_are_read_from_their_beginning(data: TopicData, streams: Streams) -> None:
    reader = streams.reader()
    start = reader.initialOffset()
    data.grow(3)
    data.send(range(2), partition=2)
    end = reader.latestOffset(start, EVERYTHING)
    assert bare(end) == {data.name: {"0": 0, "1": 0, "2": 2}}
    assert ranges(reader, start, end) == [(2, 0, 2)]


def test_a_new_partition_whose_records_are_gone_already(data: TopicData, streams: Streams) -> None:
    data.send(range(5), partition=1)
    data.delete_before(3, partition=1)
    start, end = {data.name: {"0": 0}}, {data.name: {"0": 0, "1": 5}}
    with pytest.raises(DataLossError, match=f"offsets 0 to 2 of the new partition {data.name}-1 were deleted"):
        streams.reader().partitions(start, end)
    assert ranges(streams.reader(failOnDataLoss="false"), start, end) == [(1, 3, 5)]


def test_a_topic_that_is_deleted(data: TopicData, streams: Streams) -> None:
    other = TopicData(data.bootstrap)
    other.send(range(4))
    both = {"subscribe": f"{data.name},{other.name}"}
    strict, lenient = streams.reader(**both), streams.reader(**both, failOnDataLoss="false")
    start = strict.initialOffset()
    data.delete()
    end = strict.latestOffset(start, EVERYTHING)
    assert bare(end) == bare(lenient.latestOffset(start, EVERYTHING)) == {other.name: {"0": 4}}
    with pytest.raises(DataLossError, match=f"partitions {data.name}-0, {data.name}-1 no longer exist"):
        strict.partitions(start, end)
    assert ranges(lenient, start, end) == [(0, 0, 4)]


def test_a_topic_that_is_created_again(data: TopicData, streams: Streams) -> None:
    data.send(range(5))
    start = {data.name: {"0": 5, "1": 0}}
    data.delete()
    data.create(2)
    data.send(range(2))
    data.send(range(3), partition=1)
    strict, lenient = streams.reader(), streams.reader(failOnDataLoss="false")
    end = strict.latestOffset(start, EVERYTHING)
    assert bare(end) == bare(lenient.latestOffset(start, EVERYTHING)) == {data.name: {"0": 2, "1": 3}}
    with pytest.raises(DataLossError, match=f"{data.name}-0 ends at offset 2, but the next offset to read is 5"):
        strict.partitions(start, end)
    assert ranges(lenient, start, end) == [(1, 0, 3)]


def test_a_topic_that_is_created_again_is_another_also_if_it_has_more(data: TopicData, streams: Streams) -> None:
    data.send(range(6))
    start = streams.reader().latestOffset(streams.reader().initialOffset(), EVERYTHING)
    assert bare(start) == {data.name: {"0": 6, "1": 0}}
    data.delete()
    data.create(2)
    data.send(range(12))
    data.delete_before(2)
    strict, lenient = streams.reader(), streams.reader(failOnDataLoss="false", maxOffsetsPerTrigger="5")
    end = strict.latestOffset(start, EVERYTHING)
    with pytest.raises(DataLossError, match=f"topic {data.name} was deleted and created again.*6 of {data.name}-0"):
        strict.partitions(start, end)
    end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
    assert ranges(lenient, start, end) == [(0, 2, 7)]
    assert ranges(lenient, end, lenient.latestOffset(end, EVERYTHING)) == [(0, 7, 12)]


def test_a_topic_that_is_created_again_is_another_also_if_it_has_as_many(data: TopicData, streams: Streams) -> None:
    data.send(range(6))
    start = streams.reader().latestOffset(streams.reader().initialOffset(), EVERYTHING)
    data.delete()
    data.create(2)
    data.send(range(6))
    reader = streams.reader(minOffsetsPerTrigger="100")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end != start
    with pytest.raises(DataLossError, match="created again"):
        reader.partitions(start, end)


def test_a_batch_that_was_planned_before_its_topic_was_created_again(data: TopicData, streams: Streams) -> None:
    """A query that was ended in it gets it again from its checkpoint."""
    data.send(range(6))
    ended = streams.reader()
    start = ended.initialOffset()
    end = ended.latestOffset(start, EVERYTHING)
    data.delete()
    data.create(2)
    data.send(range(12))
    with pytest.raises(DataLossError, match="created again"):
        streams.reader().partitions(start, end)
    lenient = streams.reader(failOnDataLoss="false")
    assert ranges(lenient, start, end) == []
    assert ranges(lenient, end, lenient.latestOffset(end, EVERYTHING)) == [(0, 0, 12)]


def test_a_checkpoint_without_ids_gets_them_with_its_next_batch(data: TopicData, streams: Streams) -> None:
    data.send(range(3))
    reader = streams.reader()
    start = {data.name: {"0": 3, "1": 0}}
    assert reader.latestOffset(start, EVERYTHING) == start  # no batch for the ids alone
    data.send(range(2))
    end = reader.latestOffset(start, EVERYTHING)
    assert ids_from_json(end).keys() == {data.name}
    assert ranges(reader, start, end) == [(0, 3, 5)]


# Progress.


def test_where_a_query_stands_is_seen_in_a_group(data: TopicData, streams: Streams) -> None:
    data.send(range(5))
    group = f"group-{data.name}"
    reader = streams.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    wait_until(lambda: data.committed(group) == {0: 0, 1: 0}, "the start to be committed")
    reader.commit(end)
    wait_until(lambda: data.committed(group) == {0: 5, 1: 0}, "the end to be committed")
    data.send(range(2))
    assert bare(reader.latestOffset(end, EVERYTHING)) == {data.name: {"0": 7, "1": 0}}
    assert data.committed(group) == {0: 5, 1: 0}  # a lag of two


def test_the_end_of_the_last_batch_is_seen_without_a_further_one(data: TopicData, streams: Streams) -> None:
    data.send(range(5))
    reader = streams.reader()
    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    reader.latestOffset(end, EVERYTHING)
    assert data.committed(f"group-{data.name}") == {0: 5, 1: 0}


def test_progress_need_not_be_shown(data: TopicData, streams: Streams) -> None:
    reader = streams.reader(commitOffsets="false")
    reader.latestOffset(reader.initialOffset(), EVERYTHING)
    reader.commit({data.name: {"0": 0, "1": 0}})
    assert data.committed(f"group-{data.name}") == {}


def test_a_failed_commit_is_reported_only_once(
    data: TopicData, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    reader = streams.reader()
    gone = TopicData(data.bootstrap)
    gone.delete()
    group = _ProgressGroup(streams.options(), f"group-{data.name}")
    for offset in (1, 2):
        group.commit({TopicPartition(gone.name, 0): offset})
        group.settle()
    group.close()
    told = [record for record in caplog.records if "offsets could not be committed to group" in record.getMessage()]
    assert len(told) == 1
    assert bare(reader.latestOffset(reader.initialOffset(), EVERYTHING)) == {data.name: {"0": 0, "1": 0}}


# Where it lives.


def test_a_reader_that_travels_leaves_its_client_behind(data: TopicData, streams: Streams) -> None:
    data.send(range(2))
    reader = streams.reader()
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert "_driver" not in copy.__dict__ or copy.__dict__["_driver"] is None
    partition = reader.partitions({data.name: {"0": 0, "1": 0}}, {data.name: {"0": 2, "1": 0}})[0]
    assert [value.as_py() for batch in copy.read(partition) for value in batch.column("value")] == [b"0", b"1"]


def test_stopping_before_the_start_is_harmless(streams: Streams) -> None:
    streams.reader().stop()
