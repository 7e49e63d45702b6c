"""Pipelines from files: from topic to topic, stopped, gone on with, and failing with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic
from ottla.spark.pipelines import running as queries
from ottla.spark.pipelines.errors import PipelineError, QueryFailedError
from ottla.spark.pipelines.example_files import write_example
from ottla.spark.pipelines.python_files import load_function, queries_of
from ottla.spark.pipelines.running import CHECKPOINTS, RunningQuery
from ottla.spark.pipelines.yaml_build import build
from ottla.spark.pipelines.yaml_spec import read_spec
from support.clients.peers import Peer
from support.waiting import wait_until

WAIT_S = 300
"""Only a failure waits that long."""

SUMS = """\
sources:
  events:
    topic: {topic}
    json: id BIGINT NOT NULL, name STRING
    bad: {topic}-bad
    options: {{startingOffsets: earliest}}
  names:
    format: csv
    path: names.csv
    options: {{header: true}}
transforms:
  named: SELECT name, id, city FROM events JOIN names USING (name)
  sums: SELECT name, city, sum(id) AS total FROM named GROUP BY name, city
sinks:
  sums:
    topic: {topic}-out
    key: name
    mode: update
"""


@pytest.fixture
def checkpoints(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    spark.conf.set(CHECKPOINTS, str(tmp_path / "checkpoints"))
    yield tmp_path / "checkpoints"
    spark.conf.unset(CHECKPOINTS)


@pytest.fixture
def topics(broker: Peer, topic: str) -> str:
    """A topic to read, one to write, and one for what is bad; the first one's name."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{topic}{suffix}", 1, 1) for suffix in ("", "-out", "-bad")])
    return topic


def send(broker: Peer, topic: str, *values: object) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value if isinstance(value, bytes) else json.dumps(value).encode())


def records(broker: Peer, topic: str) -> list[Any]:
    """All that is in a topic of one partition."""
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[Any] = []
        while consumer.position(partition) < end:
            found += consumer.poll(timeout=5)
        return found


def letter_of(topic: str, offset: int) -> dict[str, bytes]:
    """The headers of nonsense at this offset, after it was set aside."""
    message = "not JSON: Expecting value: line 1 column 1 (char 0)"
    parts = {"exception": "DecodeError", "message": message, "topic": topic, "partition": "0", "offset": str(offset)}
    return {f"__streams.errors.{name}": text.encode() for name, text in parts.items()}


def finish(running: list[RunningQuery]) -> None:
    deadline = time.monotonic() + WAIT_S

    def wait() -> bool:
        time.sleep(0.05)
        return time.monotonic() > deadline

    assert queries.watch(running, lambda _: None, wait), "it did not end"


def yaml_file(folder: Path, text: str) -> Path:
    (folder / "names.csv").write_text("name,city\na,Praha\nb,Oslo\n")
    file = folder / "sums.yaml"
    file.write_text(text)
    return file


@pytest.mark.usefixtures("checkpoints")
def test_the_example_sends_bad_records_on_with_the_reason(
    spark: SparkSession, broker: Peer, topics: str, tmp_path: Path
) -> None:
    file = write_example(tmp_path, as_yaml=False)[0]
    text = file.read_text().replace('(bad, "bad-orders"', f'(bad, "{topics}-bad"')
    text = text.replace('"subscribe", "orders"', f'"subscribe", "{topics}"')
    file.write_text(f"{text}\nBROKERS = {broker.bootstrap!r}\n")
    send(broker, topics, b"nonsense")
    writers = queries_of(load_function(file), spark, file)
    finish(queries.start({"bad": writers["bad-orders"]}, once=True))
    (bad,) = records(broker, f"{topics}-bad")
    assert bad.value == b"nonsense"
    assert dict(bad.headers) == letter_of(topics, 0)


@pytest.mark.usefixtures("checkpoints")
def test_yaml_from_topic_to_topic_and_on_from_the_checkpoint(
    spark: SparkSession, broker: Peer, topics: str, tmp_path: Path
) -> None:
    spec = read_spec(yaml_file(tmp_path, SUMS.format(topic=topics)), broker.bootstrap)
    send(broker, topics, {"id": 1, "name": "a"}, b"nonsense", {"id": 2, "name": "b"}, {"id": 3, "name": "a"})
    running = queries.start(build(spec, spark), once=True)
    finish(running)
    assert {record.key: json.loads(record.value) for record in records(broker, f"{topics}-out")} == {
        b"a": {"name": "a", "city": "Praha", "total": 4},
        b"b": {"name": "b", "city": "Oslo", "total": 2},
    }
    (bad,) = records(broker, f"{topics}-bad")
    assert bad.value == b"nonsense"
    assert dict(bad.headers) == letter_of(topics, 1)
    progress = {one.progress.name: one.progress for one in running}
    assert progress.keys() == {"events-bad", "sums"}
    assert progress["sums"].rows == 4
    assert progress["sums"].state_rows == 2
    assert progress["sums"].offsets == {topics: {0: 4}}
    assert progress["sums"].lag == 0

    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.list_consumer_group_offsets("sums-events")[TopicPartition(topics, 0)].offset == 4

    send(broker, topics, {"id": 10, "name": "b"})
    running = queries.start(build(spec, spark), once=True)
    finish(running)
    assert [one.progress.rows for one in running] == [1, 1]
    assert json.loads(records(broker, f"{topics}-out")[-1].value)["total"] == 12
    assert len(records(broker, f"{topics}-bad")) == 1


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (
            "sum(id)",
            "sum(idd)",
            "13: transforms.sums: A column, variable, or function parameter with name `idd` cannot be",
        ),
        ("GROUP BY name", "GROUPP BY name", "13: transforms.sums: Syntax error at or near 'BY'"),
        ("path: names.csv", "path: nowhere.csv", "7: sources.names: Path does not exist"),
        ("key: name", "key: nam", "15: sinks.sums: key: unknown column 'nam'; use one of name, city, total"),
        ("mode: update", "mode: overwrite", "15: sinks.sums: mode: overwrite is for batch sinks"),
        ("id BIGINT NOT NULL", "id BIGGINT", "2: sources.events: Unsupported data type"),
        (
            "startingOffsets: earliest",
            "startingOffset: earliest",
            "2: sources.events: option startingoffset: unknown option; did you mean",
        ),
    ],
)
def test_what_spark_finds_wrong_is_reported_with_its_line(
    spark: SparkSession, topic: str, tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    text = SUMS.format(topic=topic)
    assert right in text
    file = yaml_file(tmp_path, text.replace(right, wrong))
    with pytest.raises(PipelineError) as error:
        build(read_spec(file), spark)
    assert f"sums.yaml:{told}" in str(error.value)


def test_what_is_no_stream_is_written_at_once(spark: SparkSession, tmp_path: Path) -> None:
    text = """\
sources:
  names: {format: csv, path: names.csv, options: {header: true}}
transforms:
  upper: SELECT upper(name) AS name FROM names
sinks:
  files: {format: json, path: out, mode: overwrite}
"""
    spec = read_spec(yaml_file(tmp_path, text))
    for _ in range(2):
        assert build(spec, spark) == {}
    assert sorted(row.name for row in spark.read.json(str(tmp_path / "out")).collect()) == ["A", "B"]


@pytest.mark.usefixtures("checkpoints")
def test_a_failing_query_says_why(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text(
        "from pyspark.sql import functions as F\n"
        "@F.udf('int')\n"
        "def doubtful(x):\n"
        "    raise ValueError(f'there is something about {x}')\n"
        "def pipeline(spark):\n"
        "    return spark.readStream.format('rate').load().select(doubtful('value')).writeStream.format('noop')\n"
    )
    running = queries.start(queries_of(load_function(file), spark, file), once=False)
    with pytest.raises(QueryFailedError, match=r"^fails: ValueError: there is something about \d+$") as error:
        finish(running)
    assert "doubtful" in error.value.trace


@pytest.mark.usefixtures("checkpoints")
def test_a_query_that_cannot_start_stops_the_others(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    good, bad = rate.writeStream.format("noop"), rate.writeStream.format("noop").outputMode("complete")
    with pytest.raises(PipelineError, match=r"^bad: .*[Cc]omplete"):
        queries.start({"good": good, "bad": bad}, once=False)
    assert "good" not in [query.name for query in spark.streams.active]


@pytest.mark.usefixtures("checkpoints")
def test_a_query_that_the_pipeline_started_itself(spark: SparkSession) -> None:
    writer = spark.readStream.format("rate").load().writeStream.format("noop")
    with pytest.raises(PipelineError, match=r"mine: the pipeline started this query itself, .* return the writer"):
        queries.start({"mine": writer.queryName("mine").start()}, once=True)
    running = queries.start({"mine": writer.queryName("mine").start()}, once=False)
    assert queries.stop(running, lambda: False)
    assert spark.streams.active == []


class _SlowSink:
    """Takes batches, and does not let go of one until it is allowed to."""

    def __init__(self) -> None:
        self.begun, self.may_end = Event(), Event()
        self.ended: list[int] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        batch.count()
        self.begun.set()
        self.may_end.wait(WAIT_S)
        self.ended.append(number)


@pytest.mark.usefixtures("checkpoints")
def test_a_stop_waits_for_the_running_batch_and_the_next_run_goes_on(spark: SparkSession) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    sink = _SlowSink()
    running = queries.start({"slow": numbers.writeStream.foreachBatch(sink)}, once=False)
    assert sink.begun.wait(WAIT_S)
    outcome: list[bool] = []
    stopping = Thread(target=lambda: outcome.append(queries.stop(running, lambda: False)))
    stopping.start()
    wait_until(lambda: not running[0].is_active, "nobody asked it to end", WAIT_S)
    assert stopping.is_alive()
    assert sink.ended == []
    sink.may_end.set()
    stopping.join(WAIT_S)
    assert (outcome, sink.ended) == ([True], [0])
    assert running[0].progress.batch == 0

    again = _SlowSink()
    again.may_end.set()
    running = queries.start({"slow": numbers.writeStream.foreachBatch(again)}, once=False)
    wait_until(lambda: again.ended, "it did not go on", WAIT_S)
    assert queries.stop(running, lambda: False)
    assert again.ended[0] == 1


@pytest.mark.usefixtures("checkpoints")
def test_an_impatient_stop_does_not_wait(spark: SparkSession) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    sink = _SlowSink()
    running = queries.start({"slow": numbers.writeStream.foreachBatch(sink)}, once=False)
    assert sink.begun.wait(WAIT_S)
    asked = 0

    def is_impatient() -> bool:
        nonlocal asked
        asked += 1
        if asked < 3:
            return False
        sink.may_end.set()  # Python's side of a batch cannot be interrupted
        return True

    assert not queries.stop(running, is_impatient)
    assert asked == 3


def test_the_command_runs_until_a_signal_and_is_gone_on_with(
    spark: SparkSession, broker: Peer, topics: str, tmp_path: Path
) -> None:
    """As people use it, in a process of its own."""
    file = yaml_file(tmp_path, SUMS.format(topic=topics).replace(f"bad: {topics}-bad", "bad: drop"))
    command = [
        sys.executable,
        "-m",
        "ottla",
        "pipeline",
        "run",
        str(file),
        "--master",
        "local[1]",
        "-b",
        broker.bootstrap,
    ]
    command += ["--conf", "spark.sql.shuffle.partitions=1", "--conf", "spark.ui.enabled=false"]
    environment = {**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"}
    send(broker, topics, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    first = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: len(records(broker, f"{topics}-out")) == 2 or first.poll() is not None, "nothing was written"
        )
        first.send_signal(signal.SIGTERM)
        printed, told = first.communicate(timeout=WAIT_S)
    finally:
        first.kill()
    assert first.returncode == 0, told
    checkpoint = tmp_path / "ottla-checkpoints" / "sums.yaml"
    assert "Checkpoint: ottla-checkpoints/sums.yaml (new)" in told
    assert "Stopped after a complete micro-batch. Run the same command to continue." in told
    assert f"{topics} 0:2" in printed.replace("\n", "")
    assert (checkpoint / "sums" / "commits" / "0").is_file()

    # Another Spark goes on from what the command left behind.
    send(broker, topics, {"id": 5, "name": "a"})
    spark.conf.set(CHECKPOINTS, str(checkpoint))
    try:
        finish(queries.start(build(read_spec(file, broker.bootstrap), spark), once=True))
    finally:
        spark.conf.unset(CHECKPOINTS)
    assert [json.loads(record.value)["total"] for record in records(broker, f"{topics}-out")][2:] == [6]
