"""The command `ottla` against a running broker of ours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, TopicPartition
from ottla.cli import completion
from ottla.cli.main import run
from ottla.client.administer import NewTopic
from ottla.testing.broker import Broker
from support.clients.command_line import Ottla, caller
from support.waiting import wait_until

OTTLA = (sys.executable, "-m", "ottla")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def ottla(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


def command(broker: Broker, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [*OTTLA, "-b", broker.bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def records(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


# Topics.


def test_the_life_of_a_topic(ottla: Ottla, topic: str) -> None:
    created = ottla("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=1000")
    assert created == f"Created topic {topic} with 3 partitions.\n"
    assert topic in ottla("topics", "list").splitlines()
    assert {"topic": topic, "partitions": 3, "replicas": 1} in json.loads(ottla("topics", "list", "--json"))

    altered = ottla("topics", "alter", topic, "--partitions", "5", "-c", "segment.ms=60000", "--unset", "retention.ms")
    assert altered == f"Changed 2 configs of topic {topic}.\nTopic {topic} now has 5 partitions.\n"
    (described,) = json.loads(ottla("topics", "describe", topic, "--json"))
    assert described["topic"] == topic
    assert re.fullmatch(r"[\w-]{22}", described["id"])
    assert described["configs"] == {"segment.ms": "60000"}
    empty = {"leader": 1, "replicas": [1], "in_sync": [1], "first_offset": 0, "next_offset": 0, "bytes": 0}
    empty |= {"offline": [], "adding": [], "removing": []}
    assert described["partitions"] == [{"partition": index, **empty} for index in range(5)]
    assert ottla("topics", "describe", topic).splitlines()[4] == f"{topic}\t4\t1\t1\t1\t0\t0\t0\t-\t-\t-"

    assert ottla("topics", "delete", topic) == f"Deleted topic {topic}.\n"
    assert topic not in ottla("topics", "list").splitlines()


def test_topics_that_are_there_already_or_not_at_all(ottla: Ottla, topic: str) -> None:
    ottla("topics", "create", topic)
    assert "TOPIC_ALREADY_EXISTS" in ottla("topics", "create", topic, code=1)
    assert ottla("topics", "create", topic, "--if-not-exists") == f"Topic {topic} already exists.\n"
    ottla("topics", "delete", topic)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla("topics", "delete", topic, code=1)
    assert ottla("topics", "delete", topic, "--if-exists") == f"Topic {topic} does not exist.\n"
    for asking in (["topics", "describe", topic], ["consume", topic]):
        assert f"Topic '{topic}' does not exist" in ottla(*asking, code=1)


def test_what_a_topic_cannot_be_is_refused_with_the_reason(ottla: Ottla, topic: str) -> None:
    other = f"{topic}-2"
    told = ottla("topics", "create", "no/slash", other, code=1)
    assert f"Created topic {other}" in told  # one bad name does not keep the others from being made
    assert "INVALID_TOPIC_EXCEPTION" in told
    assert "INVALID_CONFIG" in ottla("topics", "create", topic, "--config", "retention.mss=1", code=1)
    assert "INVALID_REPLICATION_FACTOR" in ottla("topics", "create", topic, "--replication-factor", "3", code=1)
    assert "INVALID_PARTITIONS" in ottla("topics", "alter", other, "--partitions", "1", code=1)


# Configs.


def test_names_of_topics_and_groups_are_completed(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def completions(words: str) -> list[str]:
        """What Bash offers for the last word."""
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert run([]) == 0
        return capsys.readouterr().out.split()

    monkeypatch.setenv("_OTTLA_COMPLETE", "complete_bash")
    monkeypatch.setattr(completion, "_PATIENCE_S", TIMEOUT_S)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
        admin.alter_consumer_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): 0})
    assert completions(f"ottla -b {broker.bootstrap} topics describe {topic[:5]}") == [topic]
    assert completions(f"ottla groups describe -b {broker.bootstrap} g-{topic[:5]}") == [f"g-{topic}"]
    assert completions(f"ottla -b {broker.bootstrap} consume {topic[:5]}") == [topic]
    assert completions(f"ottla -b 127.0.0.1:1 consume {topic[:5]}") == []


def test_internal_topics_are_described_only_if_asked_for(ottla: Ottla, broker: Broker, topic: str) -> None:
    ottla("topics", "create", topic)
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=topic) as consumer:
        consumer.commit({TopicPartition(topic, 0): 0})
    assert "__consumer_offsets" not in ottla("topics", "describe")
    assert "__consumer_offsets" in ottla("topics", "describe", "--internal")
    assert "__consumer_offsets" in ottla("topics", "describe", "__consumer_offsets")


def test_configs_of_a_topic(ottla: Ottla, topic: str) -> None:
    ottla("topics", "create", topic)
    assert (
        ottla("configs", "describe", "--topic", topic)
        == f"No configs are set for topic {topic}. Use --all to show the defaults.\n"
    )
    ottla("configs", "set", "--topic", topic, "retention.ms=5000", "cleanup.policy=compact,delete")
    shown = "cleanup.policy\tcompact,delete\ttopic\nretention.ms\t5000\ttopic\n"
    assert ottla("configs", "describe", "--topic", topic) == shown
    everything = ottla("configs", "describe", "--topic", topic, "--all").splitlines()
    assert "retention.ms\t5000\ttopic" in everything
    assert "max.message.bytes\t1048588\tdefault" in everything
    (only,) = [
        one
        for one in json.loads(ottla("configs", "describe", "--topic", topic, "--json"))
        if one["config"] == "retention.ms"
    ]
    assert only["source"] == "TOPIC"
    assert only["synonyms"][0] == {"config": "retention.ms", "value": "5000", "source": "TOPIC"}
    ottla("configs", "unset", "--topic", topic, "retention.ms", "cleanup.policy")
    assert "No configs are set" in ottla("configs", "describe", "--topic", topic)
    assert "INVALID_CONFIG" in ottla("configs", "set", "--topic", topic, "retention.ms=soon", code=1)
    told = f"topic {topic} has no config 'retention.mss': did you mean 'retention.ms'?"
    assert told in ottla("configs", "unset", "--topic", topic, "retention.mss", code=1).replace("Topic", "topic")
    assert "has no config" in ottla("topics", "alter", topic, "--unset", "retention.mss", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla("configs", "describe", "--topic", "absent", code=1)


def test_configs_of_brokers(ottla: Ottla) -> None:
    ottla("configs", "set", "--broker-defaults", "log.retention.ms=123456")
    try:
        assert ottla("configs", "describe", "--broker-defaults").startswith("log.retention.ms\t123456\t")
        of_broker = ottla("configs", "describe", "--broker", "1").splitlines()
        assert "log.retention.ms\t123456\tdynamic default broker" in of_broker
        assert "broker.id\t1\tstatic broker" in of_broker
    finally:
        ottla("configs", "unset", "--broker-defaults", "log.retention.ms")
        ottla("configs", "unset", "--broker-defaults", "log.retention.bytes")
        assert "has no config 'nonsense'" in ottla("configs", "unset", "--broker-defaults", "nonsense", code=1)
    assert "There is no broker 77 in the cluster; its brokers are 1" in ottla(
        "configs", "describe", "--broker", "77", code=1
    )


def test_configs_of_a_group(ottla: Ottla) -> None:
    of_group = ("--group", "g")
    assert "No configs are set for group g" in ottla("configs", "describe", *of_group)
    ottla("configs", "set", *of_group, "consumer.session.timeout.ms=50000")
    assert ottla("configs", "describe", *of_group) == "consumer.session.timeout.ms\t50000\tgroup\n"
    everything = ottla("configs", "describe", *of_group, "--all").splitlines()
    assert "consumer.heartbeat.interval.ms\t5000\tdefault" in everything
    assert "INVALID_CONFIG" in ottla("configs", "set", *of_group, "consumer.session.timeout.ms=1", code=1)
    ottla("configs", "unset", *of_group, "consumer.session.timeout.ms")
    assert "No configs are set for group g" in ottla("configs", "describe", *of_group)
    assert "all brokers" not in ottla("configs", "describe", "--group", "", code=1)
    assert "exactly one of" in ottla("configs", "describe", *of_group, "--topic", "t", code=1)


# Records.


def test_lines_through_a_pipe(broker: Broker, topic: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(1000))
    produced = command(broker, "produce", topic, text=lines)
    assert (produced.returncode, produced.stdout, produced.stderr) == (0, "", "")
    consumed = command(broker, "consume", topic, "--from-beginning", "--no-follow")
    assert (consumed.returncode, consumed.stdout, consumed.stderr) == (0, lines, "")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_everything_a_record_has(codec: str, ottla: Ottla, topic: str, tmp_path: Path) -> None:
    ottla("topics", "create", topic, "--partitions", "2")
    own = [{"name": "h", "value": "1"}, {"name": "h", "value": None}]
    given: list[dict[str, Any]] = [
        {"key": "k", "value": "first", "headers": own},
        {"key": None, "value": None, "partition": 1, "timestamp": 1_700_000_000_000},
        {"key_base64": "/w==", "value": "žluťoučký", "partition": 1, "timestamp": 1_700_000_000_001},
    ]
    lines = tmp_path / "lines.json"
    lines.write_text("".join(json.dumps(line) + "\n" for line in given))
    ottla("produce", topic, "--json", "--file", str(lines), "--compression", codec, "-P", "0", "-H", "all=yes")
    found = records(ottla("consume", topic, "--from-beginning", "--no-follow", "--json"))
    every = {"name": "all", "value": "yes"}
    assert [one for one in found if one["partition"] == 0] == [
        {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp": found[[one["partition"] for one in found].index(0)]["timestamp"],
            "key": "k",
            "value": "first",
            "headers": [every, *own],
        }
    ]
    place = {"topic": topic, "partition": 1, "headers": [every]}
    assert [one for one in found if one["partition"] == 1] == [
        {**place, "offset": 0, "timestamp": 1_700_000_000_000, "key": None, "value": None},
        {**place, "offset": 1, "timestamp": 1_700_000_000_001, "key_base64": "/w==", "value": "žluťoučký"},
    ]


def test_where_to_begin_and_where_to_end(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    lines = tmp_path / "lines.json"
    ages_ms = [3 * 3_600_000, 2 * 3_600_000, 600_000, 0]
    lines.write_text("".join(f'{{"value": "{age}", "timestamp": {now_ms - age}}}\n' for age in ages_ms))
    ottla("produce", topic, "--json", "--file", str(lines))

    def consumed(*arguments: str) -> list[int]:
        return [int(line) for line in ottla("consume", topic, "--no-follow", *arguments).splitlines()]

    assert consumed() == []
    assert consumed("--from-beginning") == ages_ms
    assert consumed("--from-beginning", "-n", "2") == ages_ms[:2]
    assert consumed("--offset", "2") == ages_ms[2:]
    assert consumed("--offset", "-1") == ages_ms[3:]
    assert consumed("--offset", "-99") == ages_ms
    assert consumed("--since", "1 hour ago") == ages_ms[2:]
    assert consumed("--since", "now") == []
    assert "Offset 9 is out of range: partition" in ottla("consume", topic, "--offset", "9", code=1)
    assert f"Topic {topic} has no partition 5: it has only partition 0" in ottla("consume", topic, "-P", "5", code=1)


def test_keys_headers_and_formats(broker: Broker, ottla: Ottla, topic: str) -> None:
    text = "a=1\tk1:v1\n\tk2:\n"
    assert command(broker, "produce", topic, "-k", ":", "--headers", "--null-if-empty", text=text).returncode == 0
    shown = ottla("consume", topic, "--from-beginning", "-n", "2", "--format", "%t/%p@%o %k(%K)=%v(%S) [%h]\\n")
    assert shown == f"{topic}/0@0 k1(2)=v1(2) [a=1]\n{topic}/0@1 k2(2)=(-1) []\n"


def test_a_line_that_is_no_record_is_named_and_those_before_it_are_sent(broker: Broker, topic: str) -> None:
    produced = command(broker, "produce", topic, "-k", ":", text="a:1\nb:2\nnonsense\nc:3\n")
    assert produced.returncode == 1
    assert produced.stderr.startswith("Error: Line 3: no ':' between key and value. Sent 2 lines before it")
    consumed = command(broker, "consume", topic, "--from-beginning", "--no-follow")
    assert consumed.stdout == "1\n2\n"


def test_a_record_that_is_too_large_is_refused_with_the_reason(broker: Broker, topic: str) -> None:
    produced = command(broker, "produce", topic, text="x" * 2_000_000 + "\n")
    assert produced.returncode == 1
    assert "MESSAGE_TOO_LARGE" in produced.stderr


def test_acks(ottla: Ottla, broker: Broker, topic: str) -> None:
    ottla("topics", "create", topic)
    for acks in ("0", "1", "all"):
        assert command(broker, "produce", topic, "--acks", acks, text=f"{acks}\n").returncode == 0
    shown = ottla("consume", topic, "--from-beginning", "-n", "3").splitlines()
    assert sorted(shown) == ["0", "1", "all"]


def test_records_are_shown_as_they_come_until_interrupted(broker: Broker, ottla: Ottla, topic: str) -> None:
    ottla("topics", "create", topic)
    following = subprocess.Popen(
        [*OTTLA, "-b", broker.bootstrap, "consume", topic, "--from-beginning"],
        stdout=subprocess.PIPE,
        text=True,
        # A test run in the background hands on that Ctrl-C is to be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert following.stdout is not None
        for word in ("first", "second"):
            command(broker, "produce", topic, text=f"{word}\n")
            assert following.stdout.readline() == f"{word}\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(TIMEOUT_S) == 0
        assert following.stdout.read() == ""
    finally:
        following.kill()
        following.wait()
        if following.stdout:
            following.stdout.close()


def test_the_reader_of_a_pipe_may_stop(broker: Broker, topic: str) -> None:
    command(broker, "produce", topic, text="".join(f"{number}\n" for number in range(100_000)))
    shell = f"{sys.executable} -m ottla -b {broker.bootstrap} consume {topic} --from-beginning | head -n 1"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


def test_the_files_of_a_running_broker_can_be_dumped(broker: Broker, ottla: Ottla, topic: str) -> None:
    command(broker, "produce", topic, text="one\ntwo\n")
    folder = broker.directory / "data" / "logs" / f"{topic}-0"
    lines = records(ottla("log", "dump", str(folder), "--values", "--json"))
    assert [line["value"] for line in lines if line["kind"] == "record"] == ["one", "two"]
    assert ottla("log", "dump", str(folder), "--check") == ""


# A broker from the command line.


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*OTTLA, "start", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_starts_tells_where_it_is_and_stops_in_good_order(end: signal.Signals, tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path / "data"), "--override", "listeners=PLAINTEXT://127.0.0.1:0")
    for expected in ([], ["orders"]):
        process = start(*arguments)
        try:
            assert process.stdout is not None
            ready = re.fullmatch(r"Ottla is ready at (127\.0\.0\.1:\d+)\n", process.stdout.readline())
            assert ready
            assert process.stdout.readline().startswith("  broker ")
            assert process.stdout.readline() == f"  data in {tmp_path / 'data' / 'logs'}\n"
            listed = subprocess.run(
                [*OTTLA, "topics", "list", "-b", ready[1]],
                capture_output=True,
                text=True,
                check=True,
                timeout=TIMEOUT_S,
            )
            assert listed.stdout.split() == expected
            subprocess.run(
                [*OTTLA, "topics", "create", "orders", "--if-not-exists", "-b", ready[1]],
                check=True,
                capture_output=True,
                timeout=TIMEOUT_S,
            )
            second = start(*arguments)
            _, error = second.communicate(timeout=TIMEOUT_S)
            assert second.returncode == 1
            assert error.splitlines()[-1].startswith("Error: ")
            assert "Traceback" not in error
            process.send_signal(end)
            process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()


def test_the_demo_ends_by_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*OTTLA, "demo", "--no-spark", "--seconds", "2"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Every record that was sent was received" in ended.stderr
    for name in ("orders", "payments", "page-views"):
        row = re.search(rf"{name} +\d+ +([\d,]+) +([\d,]+) ", ended.stdout)
        assert row
        assert row[1] == row[2] != "0"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_can_be_interrupted_and_cleans_up(end: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*OTTLA, "demo", "--no-spark", "--seconds", "600"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stderr is not None
        assert demo.stderr.readline().startswith("Starting a broker")
        wait_until(lambda: list(tmp_path.glob("*/data/logs/page-views-*")), "the topics", TIMEOUT_S)
        demo.send_signal(end)
        output, error = demo.communicate(timeout=TIMEOUT_S)
        assert demo.returncode == 0, error
        assert "page-views" in output
        assert list(tmp_path.iterdir()) == []
    finally:
        demo.kill()
        demo.communicate()
