from __future__ import annotations

import pickle
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.spark.offsets import AtOffsets, AtTime, AtTimes, Earliest, Latest
from ottla.spark.options import OptionError, Partitions, ReadOptions, SubscribePattern, Topics, WriteOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
PLAIN = {**SERVERS, "subscribe": "t"}
A0 = TopicPartition("a", 0)


def read(**options: str) -> ReadOptions:
    return ReadOptions.parse({**PLAIN, **{name.replace("__", "."): value for name, value in options.items()}})


# What to read.


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"subscribe": " a, b,,a "}, Topics(("a", "b"))),
        ({"subscribePattern": " ev.* "}, SubscribePattern("ev.*")),
        ({"assign": '{"a":[0]}'}, Partitions((A0,))),
        ({"SUBSCRIBE": "a"}, Topics(("a",))),
        ({"subscribepattern": "x"}, SubscribePattern("x")),
    ],
)
def test_three_ways_to_say_what_is_read(given: dict[str, str], meant: object) -> None:
    assert ReadOptions.parse({**SERVERS, **given}).selection == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "subscribe: is not set"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign: cannot be combined with subscribe"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": ""}, "is empty"),
        ({"subscribePattern": "*"}, "not a regular expression"),
        ({"assign": "a"}, "assign: 'a' is not a JSON object"),
    ],
)
def test_what_is_read_has_to_be_clear(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        ReadOptions.parse({**SERVERS, **given})


def test_defaults_are_those_of_sparks_connector() -> None:
    options = read()
    assert options.batch_ends() == (Earliest(), Latest())
    assert options.stream_start() == Latest()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_trigger_delay_ms == 900_000
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (None, None)
    assert options.partitions_age_max_ms is None
    assert not options.is_read_committed


# Where.


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"startingOffsets": "EARLIEST"}, Earliest()),
        ({"startingOffsets": "latest"}, Latest()),
        ({"startingOffsets": ' {"a":{"0":-2}} '}, AtOffsets({A0: -2})),
        ({"startingTimestamp": "1000", "startingOffsets": "latest"}, AtTime(1000)),
        ({"startingOffsetsByTimestamp": '{"a":{"0":7}}', "startingOffsets": "latest"}, AtTimes({A0: 7})),
        ({"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"a":{"0":7}}'}, AtTime(1)),
    ],
)
def test_where_a_query_begins(given: dict[str, str], meant: object) -> None:
    assert read(**given).stream_start() == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "cannot end at earliest"),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'},
            "offset 4 of a-0 is before its start, 5",
        ),
        ({"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"1":9}}'}, "the same partitions"),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsetsByTimestamp": '{"a":{"0":4}}'},
            "time 4 of a-0 is before",
        ),
    ],
)
def test_a_batch_ends_after_its_beginning(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        read(**given).batch_ends()


def test_a_batch_may_end_at_the_latest_of_a_partition() -> None:
    given = {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":-1}}'}
    assert read(**given).batch_ends() == (AtOffsets({A0: 5}), AtOffsets({A0: -1}))


@pytest.mark.parametrize(
    "given", [{"endingOffsets": "latest"}, {"endingTimestamp": "1"}, {"endingOffsetsByTimestamp": '{"a":{"0":7}}'}]
)
def test_a_stream_has_no_end(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="a streaming query has no end"):
        read(**given).stream_start()


# Values.


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "first"}, "startingOffsets: 'first' must be earliest, latest"),
        ({"startingOffsets": '{"a":1}'}, "startingOffsets: topic 'a' needs a number"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: 'yesterday' is not a whole number"),
        ({"startingOffsetsByTimestamp": "1"}, "startingOffsetsByTimestamp: '1' is not a JSON object"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "'guess' is not one of error, latest"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss: 'perhaps' is neither true nor false"),
        ({"minPartitions": "0"}, "minPartitions: 0 is less than 1"),
        ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition: -5 is less than 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger: 'many' is not a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 is greater than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"partition__metadata__cache__ttl__ms": "0"}, "partition.metadata.cache.ttl.ms: 0 is neither"),
    ],
)
def test_values_that_cannot_be(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        read(**given)


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1min", 60_000), ("2H", 7_200_000), ("7", 7)]
)
def test_times_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    assert read(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_every_option_is_taken() -> None:
    options = read(
        startingOffsetsByTimestampStrategy="LATEST",
        failOnDataLoss="False",
        includeHeaders="true",
        minPartitions="7",
        maxRecordsPerPartition="100",
        maxOffsetsPerTrigger="50",
        minOffsetsPerTrigger="5",
        fetchOffset__numRetries="2",
        fetchOffset__retryIntervalMs="10",
        partition__metadata__cache__ttl__ms="60000",
    )
    assert options.latest_if_none_is_newer
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.min_partitions, options.max_records_per_partition) == (7, 100)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (5, 50)
    assert (options.ask_attempts, options.ask_interval_ms) == (2, 10)
    assert options.partitions_age_max_ms == 60_000


# Names.


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("startingOffset", "unknown option; did you mean startingOffsets?"),
        ("subscibe", "did you mean subscribe?"),
        ("maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers?"),
        ("kafka.fetch.max.byte", "did you mean kafka.fetch.max.bytes?"),
        ("zzz", "client configs start with kafka."),
    ],
)
def test_an_unknown_option_is_reported_with_the_nearest(name: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadOptions.parse({**PLAIN, name.lower(): "1"})
    assert told in str(caught.value)


def test_jobs_share_their_options_between_reading_and_writing() -> None:
    shared = {**PLAIN, "topic": "out", "startingOffsets": "earliest", "checkpointLocation": "/c", "kafka.acks": "all"}
    assert "acks" not in ReadOptions.parse(shared).client_settings
    written = WriteOptions.parse({**shared, "kafka.fetch.min.bytes": "1"})
    assert written.topic == "out"
    assert written.client_settings == {"bootstrap.servers": "localhost:9092", "acks": "all"}


# What goes to the client.


def test_settings_reach_the_client_without_their_prefix() -> None:
    options = ReadOptions.parse({**PLAIN, "kafka.isolation.level": "read_committed", "KAFKA.Fetch.Max.Bytes": "1000"})
    assert options.client_settings == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
        "fetch.max.bytes": "1000",
    }
    assert options.is_read_committed
    assert options.admin_settings == {"bootstrap.servers": "localhost:9092"}


def test_how_long_tasks_wait() -> None:
    assert read(kafkaConsumer__pollTimeoutMs="777").client_settings["default.api.timeout.ms"] == "777"
    both = read(kafkaConsumer__pollTimeoutMs="777", kafka__default__api__timeout__ms="5")
    assert both.client_settings["default.api.timeout.ms"] == "5"


@pytest.mark.parametrize(
    "key",
    ["auto.offset.reset", "enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer"],
)
def test_settings_that_a_query_decides_itself(key: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{key}: cannot be set"):
        ReadOptions.parse({**PLAIN, f"kafka.{key}": "x"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: is required"),
        ({"kafka.fetch.max.bytes": "much"}, "kafka.fetch.max.bytes: 'much' is not a whole number"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol: 'SSL' cannot be used"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism: cannot be set"),
    ],
)
def test_settings_are_checked_before_anything_runs(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        ReadOptions.parse({**PLAIN, **given})


# The group that shows progress.


def test_the_group_is_the_same_at_every_start() -> None:
    named = read().commit_group
    assert named is not None
    assert named.startswith("spark-kafka-source-")
    assert read(maxOffsetsPerTrigger="5", startingOffsets="earliest").commit_group == named
    assert read(subscribe="other").commit_group != named
    assert read(subscribe="a,b").commit_group == read(subscribe="b, a").commit_group


def test_the_group_can_be_named() -> None:
    assert (read(groupIdPrefix="mine").commit_group or "").startswith("mine-")
    assert read(groupIdPrefix="mine", kafka__group__id="outright").commit_group == "outright"
    assert read(commitGroup="whole", kafka__group__id="outright").commit_group == "whole"
    assert "group.id" not in read(kafka__group__id="outright").client_settings
    assert read(commitGroup="whole", commitOffsets="false").commit_group is None


# Writing.


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": " "}, "topic: is empty"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer: cannot be set"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer: cannot be set"),
        ({"kafka.acks": "some"}, "kafka.acks"),
        ({"topics": "t"}, "did you mean topic?"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: is required"),
    ],
)
def test_where_rows_go_is_checked(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told.replace("?", r"\?")):
        WriteOptions.parse({**SERVERS, **given})


def test_options_of_writing() -> None:
    options = WriteOptions.parse({**SERVERS, "TOPIC": "t", "resultspath": "/r", "includeHeaders": "true"})
    assert (options.topic, options.results_path) == ("t", "/r")
    assert WriteOptions.parse(SERVERS).topic is None


@pytest.mark.parametrize("options", [read(startingOffsets='{"a":{"0":5}}'), WriteOptions.parse(SERVERS)])
def test_options_travel(options: Any) -> None:
    assert pickle.loads(pickle.dumps(options)) == options
    assert len(pickle.dumps(options)) < 2000
