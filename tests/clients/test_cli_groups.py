"""`ottla groups` against a running broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic
from support.clients.command_line import Ottla, caller
from support.clients.peers import Peer

COUNT = 10
START_MS = 1_700_000_000_000
POLL_S = 30.0


@pytest.fixture
def ottla(broker: Peer, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(broker: Peer) -> str:
    """Two partitions, the first with records a second apart."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(COUNT):
            producer.send(name, b"%d" % number, partition=0, timestamp=START_MS + 1000 * number)
    return name


@pytest.fixture
def consumer(broker: Peer, group: str, topic: str) -> Iterator[Consumer]:
    """A member that has read and committed four records."""
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=4,
    ) as consumer:
        consumer.subscribe([topic])
        assert len(consumer.poll(POLL_S)) == 4
        consumer.commit()
        yield consumer


@pytest.fixture
def left(consumer: Consumer, group: str) -> str:
    """The group, when its member has gone."""
    consumer.close()
    return group


def rows(output: str) -> list[list[str]]:
    return [line.split("\t") for line in output.splitlines() if "\t" in line]


def test_a_group_at_work(ottla: Ottla, consumer: Consumer, group: str, topic: str) -> None:
    assert group in ottla("groups", "list").split()
    assert group in ottla("groups", "list", "--state", "Stable", "--type", "classic").split()
    assert group not in ottla("groups", "list", "--state", "empty").split()
    (listed,) = [one for one in json.loads(ottla("groups", "list", "--json")) if one["group"] == group]
    assert (listed["state"], listed["type"], listed["protocol"]) == ("Stable", "classic", "consumer")
    member = consumer.group_metadata().member_id
    shown = rows(ottla("groups", "describe", group))
    assert [row[:8] for row in shown] == [
        [group, topic, "0", "4", "10", "6", member, "ottla-consumer"],
        [group, topic, "1", "0", "0", "0", member, "ottla-consumer"],
    ]
    ((name, who, instance, client, _, topics, partitions),) = rows(ottla("groups", "describe", group, "--members"))
    assert (name, who, instance, client, topics) == (group, member, "-", "ottla-consumer", topic)
    assert partitions == f"{topic}-0,{topic}-1"
    (described,) = json.loads(ottla("groups", "describe", group, "--json"))
    assert (described["state"], described["assignor"], described["lag"]) == ("Stable", "range", 6)
    refused = ottla("groups", "reset-offsets", group, "--all-topics", "--to-earliest", code=1)
    assert f"Group {group} is Stable and has 1 member:" in refused
    assert "NON_EMPTY_GROUP" in ottla("groups", "delete", group, code=1)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in ottla("groups", "delete-offsets", group, "-t", topic, code=1)


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], COUNT),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--shift-by", "2"], 6),
        (["--shift-by", "-3"], 1),
        (["--to-datetime", str(START_MS + 4500)], 5),
        (["--by-duration", "PT1H"], COUNT),
    ],
)
def test_offsets_are_moved_in_the_usual_ways(
    ottla: Ottla, left: str, topic: str, where: list[str], offset: int
) -> None:
    reset = ["groups", "reset-offsets", left, "--topic", f"{topic}:0", *where]
    told = ottla(*reset)
    assert rows(told) == [[left, topic, "0", "4", str(offset)]]
    assert "Nothing was changed" in told
    assert rows(ottla("groups", "describe", left))[0][3] == "4"  # so far it was only shown
    assert f"Reset 1 offset of group {left}" in ottla(*reset, "--execute")
    assert rows(ottla("groups", "describe", left))[0][3:6] == [str(offset), "10", str(COUNT - offset)]


def test_offsets_from_a_file_and_for_a_group_that_is_not_there_yet(
    ottla: Ottla, group: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{topic}",0,3\n{topic},1,0\n\n')
    answered = ottla("groups", "reset-offsets", group, "--from-file", str(file), "--execute", "--json")
    planned: list[dict[str, Any]] = json.loads(answered.splitlines()[0])
    assert [(one["partition"], one["committed"], one["new"]) for one in planned] == [(0, None, 3), (1, None, 0)]
    assert [row[3] for row in rows(ottla("groups", "describe", group))] == ["3", "0"]
    file.write_text(f"{topic},0\n")
    assert "line 1" in ottla("groups", "reset-offsets", group, "--from-file", str(file), code=1)


def test_offsets_out_of_range_are_moved_to_the_nearer_end(ottla: Ottla, left: str, topic: str) -> None:
    told = ottla("groups", "reset-offsets", left, "--all-topics", "--to-offset", "99", "--execute")
    assert f"{topic}-0: 99 is outside the log (0 to 10); using the end, 10" in told
    assert f"{topic}-1: 99 is outside the log (0 to 0)" in told
    assert [row[3] for row in rows(ottla("groups", "describe", left))] == ["10", "0"]


def test_what_cannot_be_reset_is_said(ottla: Ottla, group: str, topic: str) -> None:
    reset = ["groups", "reset-offsets", group]
    assert "Give exactly one of" in ottla(*reset, "-t", topic, code=1)
    assert "Give exactly one of" in ottla(*reset, "-t", topic, "--to-latest", "--to-earliest", code=1)
    assert "Give either --topic TOPIC" in ottla(*reset, "--to-latest", code=1)
    assert "has no partition 9" in ottla(*reset, "-t", f"{topic}:9", "--to-latest", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla(*reset, "-t", "absent", "--to-latest", code=1)
    assert "is neither TOPIC nor" in ottla(*reset, "-t", f"{topic}:x", "--to-latest", code=1)
    assert "no committed offset to shift" in ottla(*reset, "-t", topic, "--shift-by", "1", code=1)
    assert "is not a duration" in ottla(*reset, "-t", topic, "--by-duration", "long", code=1)
    assert "Nothing to reset" in ottla(*reset, "--all-topics", "--to-latest")
    assert "GROUP_ID_NOT_FOUND" in ottla("groups", "describe", group, code=1)
    assert "GROUP_ID_NOT_FOUND" in ottla("groups", "delete", group, code=1)


def test_offsets_and_groups_are_forgotten(broker: Peer, ottla: Ottla, left: str, topic: str) -> None:
    assert "has no committed offset for other" in ottla("groups", "delete-offsets", left, "-t", "other", code=1)
    assert "Deleted 1 offset " in ottla("groups", "delete-offsets", left, "-t", f"{topic}:1")
    assert [row[2] for row in rows(ottla("groups", "describe", left))] == ["0"]
    told = ottla("groups", "delete", left, "nobody", code=1)
    assert f"Deleted group {left}" in told
    assert "nobody" in told
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.list_consumer_group_offsets(left, [TopicPartition(topic, 0)]) == {}
