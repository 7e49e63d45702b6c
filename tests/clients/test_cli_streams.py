"""`ottla streams reset` against a running broker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import ottla.cli.streams.emptying as emptying
from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import EARLIEST, LATEST, ConfigResource, NewTopic
from ottla.client.errors import ClientError
from support.clients.command_line import Ottla, caller
from support.clients.peers import Peer
from unit.cli.streams.test_checkpoint import make


@pytest.fixture
def ottla(broker: Peer, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


class Query:
    """What a query leaves: a checkpoint, a group, a compacted internal topic and an output topic."""

    def __init__(self, broker: Peer, place: Path) -> None:
        self.broker = broker
        self.place = make(place)
        name = uuid.uuid4().hex[:8]
        self.group, self.internal, self.output = f"g-{name}", f"internal-{name}", f"output-{name}"
        compacted = {"cleanup.policy": "compact", "segment.ms": "1234567"}
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(self.internal, 3, configs=compacted), NewTopic(self.output, 2)])
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                for topic in (self.internal, self.output):
                    for number in range(4):
                        producer.send(topic, b"value", key=b"%d" % number, partition=number % 2)
            admin.alter_consumer_group_offsets(self.group, {TopicPartition(self.output, 0): 1})

    @property
    def arguments(self) -> list[str]:
        topics = ["--internal-topic", self.internal, "--output-topic", self.output]
        return ["streams", "reset", str(self.place), "--group", self.group, *topics, "--watch", "0"]

    def records(self, topic: str) -> int:
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            partitions = [TopicPartition(topic, one.index) for one in admin.describe_topics([topic])[topic].partitions]
            first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
            end = admin.list_offsets(dict.fromkeys(partitions, LATEST))
            return sum((end[one].offset or 0) - (first[one].offset or 0) for one in partitions)

    def is_whole(self) -> bool:
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            committed = admin.list_consumer_group_offsets(self.group)
        counts = [self.records(self.internal), self.records(self.output)]
        return self.place.is_dir() and len(committed) == 1 and counts == [4, 4]


@pytest.fixture
def query(broker: Peer, tmp_path: Path) -> Query:
    return Query(broker, tmp_path / "totals")


def test_everything_is_reset_together(ottla: Ottla, query: Query) -> None:
    output = ottla(*query.arguments, "--dry-run")
    for words in (
        str(query.place),
        query.group,
        "4 records",
        "delete and create again",
        "delete all records",
        "orders",
    ):
        assert words in output
    assert "Nothing was changed." in output
    assert query.is_whole()
    assert "Reset 1 checkpoint, 1 group and 2 topics." in ottla(*query.arguments, "--yes")
    assert list(query.place.parent.iterdir()) == []
    assert (query.records(query.internal), query.records(query.output)) == (0, 0)
    with Admin(bootstrap_servers=query.broker.bootstrap) as admin:
        assert query.group not in [group.group_id for group in admin.list_groups()]
        assert len(admin.describe_topics([query.internal])[query.internal].partitions) == 3
        resource = ConfigResource.topic(query.internal)
        assert admin.describe_configs([resource])[resource]["segment.ms"].value == "1234567"


def test_outputs_stay_unless_they_are_named(ottla: Ottla, query: Query) -> None:
    ottla("streams", "reset", str(query.place), "--watch", "0", "--yes")
    assert not query.place.exists()
    assert (query.records(query.internal), query.records(query.output)) == (4, 4)


def test_an_input_is_not_taken_for_an_output(ottla: Ottla, query: Query) -> None:
    offsets = query.place / "offsets" / "2"
    offsets.write_text(offsets.read_text().replace("orders", query.output))
    refused = f"The query reads topic '{query.output}', and inputs are never changed."
    assert refused in ottla(*query.arguments, "--yes", code=1)
    assert query.is_whole()


def test_a_group_with_members(ottla: Ottla, query: Query) -> None:
    with Consumer(bootstrap_servers=query.broker.bootstrap, group_id=query.group, enable_auto_commit=False) as consumer:
        consumer.subscribe([query.output])
        consumer.poll(30)
        output = ottla(*query.arguments, "--yes", code=1)
    assert f"The query is running: group {query.group} has 1 member. Stop it first; nothing was changed" in output
    assert query.is_whole()


@pytest.mark.parametrize("sign", ["checkpoint", "group"])
def test_a_query_that_goes_on(ottla: Ottla, query: Query, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """It finishes a micro-batch, or commits, between the question and the reset."""
    from ottla.cli.streams import command

    def answer(_: str, *, is_given: bool) -> bool:
        if sign == "checkpoint":
            (query.place / "commits" / "2").write_text("v1\n{}")
        else:
            with Admin(bootstrap_servers=query.broker.bootstrap) as admin:
                admin.alter_consumer_group_offsets(query.group, {TopicPartition(query.output, 0): 2})
        return not is_given

    monkeypatch.setattr(command, "confirm", answer)
    output = ottla(*query.arguments, code=1)
    assert "The query is running:" in output
    assert query.is_whole()


def test_a_reset_that_fails_halfway(ottla: Ottla, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ClientError("the cluster is away")

    with monkeypatch.context() as patched:
        patched.setattr(emptying, "empty", fail)
        output = ottla(*query.arguments, "--yes", code=1)
    assert "Run the same command again." in output
    assert not query.place.exists()
    assert "of an interrupted reset" in ottla(*query.arguments, "--yes")
    assert list(query.place.parent.iterdir()) == []
    assert (query.records(query.internal), query.records(query.output)) == (0, 0)


def test_a_reset_that_fails_between_deletion_and_creation(
    ottla: Ottla, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ClientError("the cluster is away")

    with monkeypatch.context() as patched:
        patched.setattr(emptying, "_create", fail)
        ottla(*query.arguments, "--yes", code=1)
    ottla(*query.arguments, "--yes")
    assert list(query.place.parent.iterdir()) == []
    assert (query.records(query.internal), query.records(query.output)) == (0, 0)
    with Admin(bootstrap_servers=query.broker.bootstrap) as admin:
        assert len(admin.describe_topics([query.internal])[query.internal].partitions) == 3
        resource = ConfigResource.topic(query.internal)
        assert admin.describe_configs([resource])[resource]["segment.ms"].value == "1234567"


def test_bad_input(ottla: Ottla, query: Query, tmp_path: Path) -> None:
    assert "no-such-topic" in ottla(*query.arguments, "--internal-topic", "no-such-topic", "--yes", code=1)
    assert f"Topic {query.output} is given twice" in ottla(*query.arguments, "--output-topic", query.output, code=1)
    assert "does not exist" in ottla("streams", "reset", str(tmp_path / "none"), code=1)
    assert query.is_whole()
