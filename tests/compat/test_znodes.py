"""Kafka's nodes: ours reads and writes each as Kafka 3.9.1 does, and a running Kafka takes ours for its own."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat.kafka_tree import (
    BEFORE,
    CLUSTER_ID,
    CONFIGS,
    CONTROLLER_EPOCH,
    LEADER_EPOCH,
    LIVE,
    USER,
    KafkaTree,
    make_kafka_tree,
)
from compat.once import Once
from kafka_artifacts import classpath
from ottla.base.ids import format_uuid
from ottla.zookeeper import paths, znodes
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import BrokerRegistration, PartitionLeader, ProducerIdBlock, TopicAssignment
from support.examples import examples
from support.strategies.znodes import KINDS, TEXT

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).parent / "java" / "Znodes.java"
NOT_READ_BY_ITS_OWN_CODE = {"config-change", "consumer", "consumer-owner"}
"""Kafka reads them where they are used; a running Kafka is told of a change below. Nodes of consumers were last read by
Kafka 1.1."""


class KafkaNodes:
    """Kafka's own reading and writing, in a process beside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def again(self, kind: str, data: bytes) -> bytes | str:
        """The node as Kafka writes it once it has read it; or why it cannot."""
        self._in.write(f"{kind} {base64.b64encode(data).decode()}\n")
        self._in.flush()
        answer = self._out.readline().rstrip("\n")
        return answer if answer.startswith("!") else base64.b64decode(answer)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaNodes]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath("3.9.1"), str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield KafkaNodes(process)
        assert process.stdin is not None
        process.stdin.close()


@settings(deadline=None, max_examples=examples(80))
@given(st.data())
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - NOT_READ_BY_ITS_OWN_CODE))
def test_kafka_reads_ours_and_writes_the_same(kafka: KafkaNodes, kind: str, data: st.DataObject) -> None:
    ours = KINDS[kind].encode(data.draw(KINDS[kind].values))
    theirs = kafka.again(kind, ours)
    assert isinstance(theirs, bytes), theirs
    assert _without_time(theirs) == _without_time(ours)


def _without_time(data: bytes) -> bytes:
    """Kafka writes a broker's registration with the time at which it does."""
    return re.sub(rb'"port":.*"timestamp":"\d+"}$', lambda found: found[0].rsplit(b":", 1)[0], data)


@settings(deadline=None)
@given(st.dictionaries(TEXT, TEXT, max_size=60))
def test_kafka_reads_configs_of_any_size(kafka: KafkaNodes, config: dict[str, str]) -> None:
    theirs = kafka.again("config", znodes.encode_config(config))
    assert isinstance(theirs, bytes)
    assert znodes.decode_config("/config", theirs) == config
    assert znodes.encode_config(znodes.decode_config("/config", theirs)) == theirs


@settings(deadline=None)
@given(TEXT)
def test_names_of_users_are_kafka_s(kafka: KafkaNodes, name: str) -> None:
    assert kafka.again("entity-name", name.encode()) == paths.entity_name(name).encode()


def test_paths_at_the_start_are_kafka_s(kafka: KafkaNodes) -> None:
    assert kafka.again("persistent-paths", b"") == " ".join(paths.persistent_paths()).encode()


# --- a running Kafka ------------------------------------------------------------------------------------------------

KIND_BY_PATH = {
    r"/cluster/id": "cluster-id",
    r"/controller": "controller",
    r"/controller_epoch": "controller-epoch",
    r"/feature": "features",
    r"/latest_producer_id_block": "producer-ids",
    r"/brokers/ids/\d+": "broker",
    r"/brokers/topics/[^/]+": "topic",
    r"/brokers/topics/[^/]+/partitions/\d+/state": "state",
    r"/config/(topics|brokers|users)/[^/]+": "config",
    r"/config/users/[^/]+/clients/[^/]+": "config",
    r"/config/changes/config_change_\d{10}": "config-change",
}
WITHOUT_DATA = "|".join(
    [
        r"/(zookeeper.*|admin|brokers|cluster|config)?",
        r"/brokers/topics/[^/]+/partitions(/\d+)?",
        r"/config/users/[^/]+/clients",
    ]
)


@pytest.fixture(scope="session")
def tree(once: Once) -> KafkaTree:
    return once("kafka-tree", make_kafka_tree)


def test_every_node_is_known_and_written_as_it_was(tree: KafkaTree) -> None:
    seen = set()
    for path, data in tree.nodes.items():
        if not data:
            assert path in paths.persistent_paths() or re.fullmatch(WITHOUT_DATA, path), path
            continue
        (kind,) = (kind for form, kind in KIND_BY_PATH.items() if re.fullmatch(form, path))
        value = KINDS[kind].decode(path, data)
        assert KINDS[kind].encode(value) == data
        seen.add(kind)
    assert seen == set(KIND_BY_PATH.values())


def test_kafka_s_nodes_say_what_was_asked(tree: KafkaTree) -> None:
    def config(kind: ConfigKind, name: str) -> dict[str, str]:
        path = paths.config(kind, name)
        return znodes.decode_config(path, tree.nodes[path])

    of_user = paths.user_client_config(paths.entity_name(USER), paths.DEFAULT_ENTITY)
    assert znodes.decode_config(of_user, tree.nodes[of_user]) == {"producer_byte_rate": "1024"}
    assert config(ConfigKind.TOPICS, "theirs") == {
        **CONFIGS,
        "flush.ms": "77",
        "unclean.leader.election.enable": "true",
    }
    assert config(ConfigKind.BROKERS, paths.DEFAULT_ENTITY) == {"background.threads": "12"}
    assert config(ConfigKind.BROKERS, "1")["log.cleaner.threads"] == "2"
    assert set(config(ConfigKind.USERS, paths.entity_name(USER))) == {"SCRAM-SHA-256"}
    topic = TopicAssignment.decode("", tree.nodes[paths.topic("theirs")])
    assert {index: each.replicas for index, each in topic.partitions.items()} == dict.fromkeys(range(14), (1,))
    assert len(TopicAssignment.decode("", tree.nodes[paths.topic("theirs.many")]).partitions) == 60
    assert BrokerRegistration.decode("", tree.nodes[paths.broker(1)]).rack == "the rack"
    block = ProducerIdBlock.decode("", tree.nodes[paths.PRODUCER_ID_BLOCK])
    assert (block.broker_id, block.last - block.first) == (1, 999)


@pytest.mark.parametrize("topic", [BEFORE, LIVE])
def test_kafka_serves_our_topics(tree: KafkaTree, topic: str) -> None:
    assert tree.seen_partitions[topic] == {0: (1,), 1: (1,)}
    assert tree.seen_ids[topic] == format_uuid(tree.topic_ids[topic])
    assert tree.consumed[topic] == [b"%d" % number for number in range(20)]


def test_kafka_goes_on_from_our_epochs(tree: KafkaTree) -> None:
    assert tree.cluster_id == CLUSTER_ID
    assert znodes.decode_controller_epoch("", tree.nodes[paths.CONTROLLER_EPOCH]) == CONTROLLER_EPOCH + 1
    led, elected = (
        PartitionLeader.decode(path, tree.nodes[path])
        for path in (paths.partition_state(BEFORE, index) for index in range(2))
    )
    assert led == PartitionLeader(1, LEADER_EPOCH, (1,), CONTROLLER_EPOCH), "it leads already"
    assert elected == PartitionLeader(1, LEADER_EPOCH + 1, (1,), CONTROLLER_EPOCH + 1)


def test_kafka_follows_a_config_that_ours_changes(tree: KafkaTree) -> None:
    assert tree.retention == ["1111", "2222"]


def test_kafka_sees_a_broker_that_ours_registers(tree: KafkaTree) -> None:
    assert len(tree.brokers) == 2
