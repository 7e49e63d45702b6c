"""Kafka's Java clients and tools, of both versions, and transactions on our broker.

`OTTLA_TEST_PEER=kafka` runs the same beside a real Kafka, to show that the tests are right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from compat.once import Once
from compat.tools.peers import peer
from compat.tools.tool_runs import Step, ToolSession
from ottla import Admin, TopicPartition
from ottla.client.administer import NewTopic
from support.clients.hanging import leave_hanging

pytestmark = pytest.mark.compat

VERSIONS = ("3.9.1", "4.3.1")
WAIT_S = 30.0
COUNT = 60
ABORTED = 5
STUCK = TopicPartition("stuck", 0)
PRODUCER_ID = 4711
COMPLETE_COMMIT, COMPLETE_ABORT = 4, 5
HANGING = "kafka-transactions find-hanging --topic stuck --max-transaction-timeout 0"


@dataclass
class Told:
    """What the tools of one version said, by step."""

    texts: dict[str, str] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)

    def lines(self, step: str) -> list[list[str]]:
        """The rows of a table, without its heading."""
        return [[cell.strip() for cell in line.split("\t")] for line in self.texts[step].splitlines()[1:]]


def told_by_tools(version: str, place: Path) -> Told:
    """All in one JVM, against one broker."""
    found = Told()
    with (
        peer(version, place) as broker,
        ToolSession(version, broker) as tools,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):

        def run(name: str, command: str) -> None:
            said = tools.run(Step(name, command))
            found.texts[name], found.exits[name] = said.text, said.exit

        admin.create_topics([NewTopic(name, 1) for name in ("in", "out", STUCK.topic)])
        # Java's transactional producer: a transaction every 20 ms.
        amount = f"--num-records {COUNT} --record-size 20 --throughput 500"
        kind = "--transactional-id perf --transaction-duration-ms 20 --command-property acks=all"
        run("produce", f"kafka-producer-perf-test --topic in {amount} {kind}")
        leave_open(broker.bootstrap, "aborted", "in", ABORTED).abort_transaction(WAIT_S)
        leave_open(broker.bootstrap, "last", "in", 1).commit_transaction(WAIT_S)
        for level, most in (("read_committed", COUNT + 1), ("read_uncommitted", COUNT + ABORTED + 1)):
            run(level, f"{consume('in', most)} --isolation-level {level}")
        topics = "--input-topic in --input-partition 0 --output-topic out"
        who = "--consumer-group copiers --transactional-id copier"
        amount = f"--max-messages {COUNT + 1} --transaction-size 7 --enable-random-aborts"
        run("copy", f"transactional-message-copier {topics} {who} {amount}")
        run("copied", f"{consume('out', COUNT + 1)} --isolation-level read_committed")
        run("copiers", "kafka-consumer-groups --describe --group copiers")
        open_one = leave_open(broker.bootstrap, "open", "out", 1)
        leave_hanging(admin, broker.bootstrap, STUCK, PRODUCER_ID)
        run("list", "kafka-transactions list")
        run("describe", "kafka-transactions describe --transactional-id open")
        run("describe-producers", "kafka-transactions describe-producers --topic stuck --partition 0")
        run("find-hanging", HANGING)
        run("abort", "kafka-transactions abort --topic stuck --partition 0 --start-offset 0")
        run("find-hanging again", HANGING)
        open_one.commit_transaction(WAIT_S)
        formatter = "--formatter org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
        run(
            "formatter",
            f"kafka-console-consumer --topic __transaction_state --from-beginning --timeout-ms 3000 {formatter}",
        )
        (log,) = place.rglob("__transaction_state-0/*.log")
        run("dump", f"kafka-dump-log --transaction-log-decoder --files {log}")
    return found


def consume(topic: str, count: int) -> str:
    """A command that ends by itself; it fails if fewer come."""
    return f"kafka-console-consumer --topic {topic} --from-beginning --max-messages {count} --timeout-ms 15000"


def leave_open(bootstrap: str, transactional_id: str, topic: str, count: int) -> confluent_kafka.Producer:
    """A producer with an open transaction of so many records."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, transactional_id.encode(), partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


@pytest.fixture(scope="session", params=VERSIONS)
def told(request: pytest.FixtureRequest, once: Once) -> Told:
    version: str = request.param
    return once(f"transactions-{version}", lambda place: told_by_tools(version, place))


def words(text: str) -> list[str]:
    """What the perf test wrote: words of 20 letters."""
    return re.findall(r"^[A-Z]{20}$", text, re.MULTILINE)


def test_every_tool_succeeded(told: Told) -> None:
    assert {name: code for name, code in told.exits.items() if code} == {}


def test_java_producer_and_console_consumer(told: Told) -> None:
    assert f"{COUNT} records sent" in told.texts["produce"]
    committed, everything = (told.texts[level].splitlines() for level in ("read_committed", "read_uncommitted"))
    assert len(words(told.texts["read_committed"])) == len(words(told.texts["read_uncommitted"])) == COUNT
    assert (committed.count("aborted"), committed.count("last")) == (0, 1)
    assert (everything.count("aborted"), everything.count("last")) == (ABORTED, 1)


def test_copies_are_exactly_once_although_transactions_are_aborted(told: Told) -> None:
    assert f'"totalProcessed":{COUNT + 1}' in told.texts["copy"]
    assert words(told.texts["copied"]) == words(told.texts["read_committed"])
    (row,) = [line.split() for line in told.texts["copiers"].splitlines() if line.startswith("copiers ")]
    _, topic, partition, committed, end, *_ = row
    assert (topic, partition) == ("in", "0")
    assert int(end) - int(committed) <= 1  # a marker


def test_kafka_transactions(told: Told) -> None:
    states = {row[0]: row[3] for row in told.lines("list")}
    assert states == {
        "perf": "CompleteCommit",
        "aborted": "CompleteAbort",
        "last": "CompleteCommit",
        "copier": "CompleteCommit",
        "open": "Ongoing",
    }
    (described,) = told.lines("describe")
    assert (described[1], described[4], described[-1]) == ("open", "Ongoing", "out-0")
    (writer,) = told.lines("describe-producers")
    assert (writer[1], writer[2], writer[3], writer[-1]) == ("0", "-1", "2", "0")
    (hanging,) = told.lines("find-hanging")
    assert hanging[:6] == ["stuck", "0", str(PRODUCER_ID), "0", "-1", "0"]
    assert told.lines("find-hanging again") == []


def test_kafkas_formatter_reads_our_records(told: Told) -> None:
    last: dict[str, dict[str, Any]] = {}
    for document in documents(told.texts["formatter"].replace("TIME", "1")):
        last[document["key"]["data"]["transactionalId"]] = document["value"]["data"]
    assert {name: value["transactionStatus"] for name, value in last.items()} == {
        "perf": COMPLETE_COMMIT,
        "aborted": COMPLETE_ABORT,
        "last": COMPLETE_COMMIT,
        "copier": COMPLETE_COMMIT,
        "open": COMPLETE_COMMIT,
    }
    assert all(not value["transactionPartitions"] for value in last.values())


def test_kafkas_decoder_reads_our_log(told: Told) -> None:
    dumped = told.texts["dump"]
    assert "isvalid: false" not in dumped
    for name in ("perf", "aborted", "last", "copier", "open"):
        assert re.search(rf'transactionalId"?[:=]"?{name}\b|transactional_id={name}\b', dumped), dumped[:2000]


def documents(text: str) -> Iterator[dict[str, Any]]:
    """They follow each other without anything between them."""
    at = text.find('{"key"')
    while at >= 0:
        document, at = json.JSONDecoder().raw_decode(text, at)
        yield document
        at = text.find('{"key"', at)
