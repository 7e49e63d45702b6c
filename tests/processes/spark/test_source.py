"""Batches as they are planned, and the readers as they travel. What Spark makes of them is in tests/spark."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ottla.spark.batch import OttlaReader, plan_batch
from ottla.spark.columns import ColumnError, read_schema
from ottla.spark.data_loss import DataLossError
from ottla.spark.options import OptionError, ReadOptions
from ottla.spark.ranges import OffsetRange, RangePartition
from ottla.spark.source import OttlaSource
from ottla.spark.topics import ClusterView, SourceError
from ottla.testing.broker import Broker
from pyspark_ottla import DefaultSource
from support.topic_data import TopicData

SCHEMA = read_schema(include_headers=False)


@pytest.fixture
def data(ottla_broker: Broker) -> TopicData:
    made = TopicData(ottla_broker.bootstrap, partitions=2)
    made.send(range(10))
    return made


def options_of(data: TopicData, **given: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": data.bootstrap,
        "subscribe": data.name,
        "fetchOffset.numRetries": "1",
        **given,
    }


def planned(data: TopicData, **given: str) -> list[tuple[int, int, int]]:
    options = ReadOptions.parse(options_of(data, **given))
    view = ClusterView(options)
    try:
        return [(one.partition, one.start, one.until) for one in plan_batch(view, options)]
    finally:
        view.close()


def offsets(data: TopicData, zero: int, one: int) -> str:
    return f'{{"{data.name}":{{"0":{zero},"1":{one}}}}}'


# Batches.


def test_tasks_resolve_default_ends(data: TopicData) -> None:
    assert planned(data) == [(0, -2, -1), (1, -2, -1)]


def test_offsets_that_are_named_stay(data: TopicData) -> None:
    given = {"startingOffsets": offsets(data, 3, -2), "endingOffsets": offsets(data, 7, -1)}
    assert planned(data, **given) == [(0, 3, 7), (1, -2, -1)]


def test_a_range_that_is_named_and_empty_has_no_task(data: TopicData) -> None:
    given = {"startingOffsets": offsets(data, 3, 0), "endingOffsets": offsets(data, 3, 0)}
    assert planned(data, **given) == []


def test_large_partitions_are_split(data: TopicData) -> None:
    assert planned(data, minPartitions="3") == [(0, -2, 3), (0, 3, 6), (0, 6, -1), (1, -2, -1)]
    assert planned(data, maxRecordsPerPartition="4", endingOffsets=offsets(data, 10, 0)) == [
        (0, -2, 3),
        (0, 3, 6),
        (0, 6, 10),
    ]


def test_a_batch_between_times(data: TopicData) -> None:
    old = TopicData(data.bootstrap)
    for time_ms in (1000, 2000, 3000):
        old.send([time_ms], timestamp_ms=time_ms)
    assert planned(old, startingTimestamp="1500", endingTimestamp="2500") == [(0, 1, 2)]
    assert planned(old, startingTimestamp="1500", endingTimestamp="9000") == [(0, 1, -1)]


def test_offsets_beyond_the_end(data: TopicData) -> None:
    with pytest.raises(SourceError, match=f"starts at offset 99 of {data.name}-0, after its end at 10"):
        planned(data, startingOffsets=offsets(data, 99, 0))
    given = {"startingOffsets": offsets(data, 5, 0), "endingOffsets": offsets(data, 99, 0)}
    with pytest.raises(DataLossError, match=f"{data.name}-0 ends at offset 10, but the batch should end at 99"):
        planned(data, **given)
    assert planned(data, **given, failOnDataLoss="false") == [(0, 5, 10)]


def test_offsets_that_were_deleted(data: TopicData) -> None:
    data.delete_before(6)
    given = {"startingOffsets": offsets(data, 2, 0), "endingOffsets": offsets(data, 8, 0)}
    with pytest.raises(DataLossError, match=f"offsets 2 to 5 of partition {data.name}-0 no longer exist"):
        planned(data, **given)
    assert planned(data, **given, failOnDataLoss="false") == [(0, 6, 8)]
    assert planned(data, endingOffsets=offsets(data, 8, 0)) == [(0, -2, 8)]


# What Spark sees.


def test_spark_finds_the_source_by_its_name() -> None:
    assert DefaultSource is OttlaSource
    assert DefaultSource.name() == "ottla"


def test_columns_are_those_of_sparks_connector(data: TopicData) -> None:
    plain = OttlaSource(options_of(data)).schema()
    assert plain.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    more = OttlaSource(options_of(data, includeHeaders="true")).schema()
    assert more.fieldNames() == [*plain.fieldNames(), "headers"]


def test_wrong_options_are_reported_before_anything_runs(data: TopicData) -> None:
    with pytest.raises(OptionError, match="did you mean startingOffsets"):
        OttlaSource(options_of(data, startingOffset="earliest")).schema()
    with pytest.raises(OptionError, match="cannot start at latest"):
        OttlaSource(options_of(data, startingOffsets="latest")).reader(SCHEMA)
    with pytest.raises(OptionError, match="a streaming query has no end"):
        OttlaSource(options_of(data, endingOffsets="latest")).streamReader(SCHEMA)
    with pytest.raises(ColumnError, match="did you mean value"):
        OttlaSource(options_of(data)).reader(StructType().add("valu", "binary"))


def test_a_reader_travels_light(data: TopicData) -> None:
    source = OttlaSource(options_of(data))
    reader = source.reader(SCHEMA)
    partitions = reader.partitions()
    for one in (reader, source.streamReader(SCHEMA), *partitions):
        assert len(pickle.dumps(one)) < 4000
    copy = pickle.loads(pickle.dumps(reader))
    values = [
        value.as_py()
        for partition in pickle.loads(pickle.dumps(partitions))
        for batch in copy.read(partition)
        for value in batch.column("value")
    ]
    assert values == [b"%d" % index for index in range(10)]


def test_a_plan_without_ranges_reads_nothing(data: TopicData) -> None:
    reader = OttlaSource(options_of(data)).reader(SCHEMA)
    assert list(reader.read(InputPartition(None))) == []


def test_a_task_reads_its_range_and_its_columns(data: TopicData) -> None:
    source = OttlaSource(options_of(data))
    reader = source.reader(StructType().add("offset", "long").add("value", "binary"))
    assert isinstance(reader, OttlaReader)
    rows = [row for batch in reader.read(RangePartition(OffsetRange(data.name, 0, 4, 6))) for row in batch.to_pylist()]
    assert rows == [{"offset": 4, "value": b"4"}, {"offset": 5, "value": b"5"}]


def test_the_sink_is_reached_by_the_same_name(data: TopicData) -> None:
    source = OttlaSource(options_of(data, topic="t"))
    schema = StructType().add("value", "string")
    assert type(source.writer(schema, False)).__name__ == "OttlaArrowWriter"
    assert type(source.streamWriter(schema, False)).__name__ == "OttlaStreamArrowWriter"


def test_planning_loads_neither_kernels_nor_arrow() -> None:
    """Spark starts a process for each step of planning."""
    program = "import sys, pyspark_ottla; print([n for n in ('numba', 'pyarrow', 'numpy') if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
