"""`ottla transactions` against a running broker."""

from __future__ import annotations

import json
import uuid

import confluent_kafka
import pytest

from ottla import Admin, TopicPartition
from ottla.client.administer import NewTopic
from support.clients.command_line import Ottla, caller
from support.clients.hanging import leave_hanging
from support.clients.peers import WITH_ZOOKEEPER, Peer, chosen_peer

WAIT_S = 30.0


@pytest.fixture
def ottla(broker: Peer, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


@pytest.fixture
def topic(broker: Peer) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.fixture
def open_id(broker: Peer, topic: str) -> str:
    """A transactional id with an open transaction in partition 0, whose producer is gone."""
    name = f"id-{uuid.uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"paid", partition=0)
    producer.flush(WAIT_S)
    return name


@pytest.fixture
def hanging(broker: Peer, topic: str) -> str:
    """A partition with a hanging transaction that starts at offset 0."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        leave_hanging(admin, broker.bootstrap, TopicPartition(topic, 1), 700_000 + uuid.uuid4().int % 90_000)
    return f"{topic}:1"


def rows(output: str) -> list[list[str]]:
    return [line.split("\t") for line in output.splitlines() if "\t" in line]


def test_an_open_transaction(ottla: Ottla, open_id: str, topic: str) -> None:
    assert open_id in ottla("transactions", "list").split()
    assert open_id in ottla("transactions", "list", "--state", "Ongoing").split()
    assert open_id not in ottla("transactions", "list", "--state", "completecommit").split()
    assert open_id not in ottla("transactions", "list", "--longer-than", "1h").split()
    assert open_id in ottla("transactions", "list", "--longer-than", "0s").split()
    (listed,) = [
        one for one in json.loads(ottla("transactions", "list", "--json")) if one["transactional_id"] == open_id
    ]
    assert listed["state"] == "Ongoing"
    assert ottla("transactions", "list", "--producer-id", str(listed["producer_id"])).split() == [open_id]
    if chosen_peer() != WITH_ZOOKEEPER:
        assert ottla("transactions", "list", "--pattern", f".*{open_id[2:]}").split() == [open_id]
    ((name, state, producer_id, _, _, timeout, _, partitions),) = rows(ottla("transactions", "describe", open_id))
    assert (name, state, producer_id, timeout) == (open_id, "Ongoing", str(listed["producer_id"]), "60000")
    assert partitions == f"{topic}-0"
    described = json.loads(ottla("transactions", "describe", "--json"))
    (one,) = [one for one in described if one["transactional_id"] == open_id]
    assert (one["partitions"], one["two_phase_commit"]) == ([f"{topic}-0"], False)
    ((_, _, writer, _, _, sequence, _, start),) = rows(ottla("transactions", "describe-producers", topic))
    assert (writer, sequence, start) == (producer_id, "0", "0")
    refused = ottla("transactions", "abort", f"{topic}:0", "--start-offset", "0", code=1)
    assert f"`ottla transactions fence {open_id}`" in refused
    assert f"Fenced the producers of {open_id}." in ottla("transactions", "fence", open_id)
    assert open_id not in ottla("transactions", "list", "--state", "ongoing").split()
    assert open_id not in ottla("transactions", "list", "--longer-than", "0s").split(), "it has ended"


def test_an_id_that_does_not_exist_is_not_created_by_fencing_it(ottla: Ottla, open_id: str) -> None:
    typo = f"{open_id}-typo"
    told = ottla("transactions", "fence", open_id, typo, code=1)
    assert f"Transactional id {typo!r} does not exist" in told
    assert typo not in ottla("transactions", "list").split()
    assert open_id in ottla("transactions", "list", "--state", "ongoing").split(), "nothing was fenced"


def test_a_hanging_transaction(ottla: Ottla, open_id: str, hanging: str, topic: str) -> None:
    assert open_id  # which is open, and no part of this
    search = ["transactions", "find-hanging", "--topic", topic]
    assert "No hanging transactions found." in ottla(*search, "--check")  # it is too young
    told = ottla(*search, "--max-timeout", "0s", "--check", code=1)
    assert f"`ottla transactions abort {hanging} --start-offset 0`" in told
    ((name, index, start, producer_id, *_),) = rows(told)
    assert (name, index, start) == (topic, "1", "0")
    (one,) = json.loads(ottla(*search, "--max-timeout", "0s", "--json").splitlines()[0])
    assert (one["producer_id"], one["transactional_id"]) == (int(producer_id), None)
    assert "Aborted the transaction that starts at offset 0" in ottla(
        "transactions", "abort", hanging, "--start-offset", "0"
    )
    assert "No hanging transactions found." in ottla(*search, "--max-timeout", "0s")


def test_errors_have_a_message(ottla: Ottla, topic: str) -> None:
    assert "Transactional id 'nobody' does not exist" in ottla("transactions", "describe", "nobody", code=1)
    assert "give either --start-offset or --producer-id" in ottla("transactions", "abort", f"{topic}:0", code=1).lower()
    told = ottla("transactions", "abort", topic, "--start-offset", "3", code=1)
    assert f"{topic!r} is not of the form TOPIC:PARTITION" in told
    told = ottla("transactions", "abort", f"{topic}:0", "--start-offset", "3", code=1)
    assert f"No open transaction in {topic}-0 starts at offset 3" in told
    assert "has no partition 7" in ottla("transactions", "abort", f"{topic}:7", "--start-offset", "3", code=1)
    assert "no replica of these partitions" in ottla(
        "transactions", "describe-producers", topic, "--broker", "99", code=1
    )
    assert "is not a duration" in ottla("transactions", "find-hanging", "--max-timeout", "soon", code=1)
