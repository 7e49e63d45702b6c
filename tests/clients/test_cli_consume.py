"""`ottla consume` and `ottla topics delete-records` against a running broker: which records, and as which member."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla import Admin, Producer
from ottla.cli.completion import complete_groups, complete_topics
from ottla.client.administer import NewTopic
from ottla.testing.broker import Broker
from support.clients.command_line import Ottla, caller

Terminal = Callable[[str], None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def ottla(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


@pytest.fixture
def topics(broker: Broker) -> list[str]:
    """Two topics of a partition each with three records, of yesterday, an hour ago and now."""
    names = [f"{uuid.uuid4().hex[:8]}-{kind}" for kind in ("orders", "payments")]
    now_ms = int(time.time() * 1000)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1) for name in names])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for name in names:
            for value, age_s in ((b"old", 86_400), (b"late", 3600), (b"new", 0)):
                producer.send(name, value, timestamp=now_ms - age_s * 1000)
    return names


class _TerminalInput(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes the standard input a terminal at which somebody types this."""
    return lambda typed: monkeypatch.setattr("sys.stdin", _TerminalInput(typed))


def test_several_topics_and_patterns(ottla: Ottla, topics: list[str]) -> None:
    shape = "--format", "%t %v\\n"
    everything = sorted(f"{topic} {value}" for topic in topics for value in ("old", "late", "new"))
    assert sorted(ottla("consume", *topics, "-o", "earliest", "--no-follow", *shape).splitlines()) == everything
    pattern = f"{topics[0][:8]}-.*"
    assert len(ottla("consume", "-e", pattern, "-o", "earliest", "--no-follow").splitlines()) == 3
    both = ottla("consume", topics[1], "-e", pattern, "--from-beginning", "--no-follow", *shape)
    assert sorted(both.splitlines()) == everything
    assert "No topic matches 'absent.*'" in ottla("consume", "-e", "absent.*", code=1)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ("--offset earliest --no-follow", "old late new"),
        ("--offset latest --no-follow", ""),
        ("--offset 1 --no-follow", "late new"),
        ("--offset -1 --no-follow", "new"),
        ("--until now", "old late new"),
        ("--until 30m", "old late"),
        ("--since 2h --until 30m", "late"),
        ("--since 30m --until 2h", ""),
        ("--offset 1 --until 30m", "late"),
    ],
)
def test_where_it_starts_and_stops(ottla: Ottla, topics: list[str], options: str, values: str) -> None:
    assert ottla("consume", topics[0], *options.split()).split() == values.split()


def test_a_member_of_a_group_goes_on_where_the_group_is(ottla: Ottla, topics: list[str]) -> None:
    group = f"g-{topics[0]}"
    assert ottla("consume", topics[0], "--group", group, "--from-beginning", "-n", "2").split() == ["old", "late"]
    assert ottla("consume", topics[0], "--group", group, "--no-follow").split() == ["new"]
    (described,) = json.loads(ottla("groups", "describe", group, "--json"))
    assert (described["lag"], described["members"], described["partitions"][0]["committed"]) == (0, [], 3)

    moved = ottla("groups", "reset", group, "--topic", topics[0], "--to-offset", "1", "--execute")
    assert moved.endswith(f"Reset 1 offset of group {group}.\n")
    pattern = f"{topics[1][:8]}-.*"
    both = ottla("consume", topics[0], "-e", pattern, "-g", group, "-o", "earliest", "--no-follow")
    assert sorted(both.split()) == ["late", "late", "new", "new", "old"]


def test_a_group_does_not_accept_offsets(ottla: Ottla, topics: list[str]) -> None:
    refused = ottla("consume", topics[0], "--group", "g", "--since", "1h", code=1)
    assert "--since cannot be used with --group" in refused


def test_old_records_are_deleted(ottla: Ottla, topics: list[str]) -> None:
    name, other = topics
    assert ottla("topics", "delete-records", name, "--before", "2h") == f"{name}\t0\t1\t1\nDeleted 1 record.\n"
    assert ottla("topics", "delete-records", name, "--before-offset", "1") == f"{name}\t0\t0\t1\nDeleted 0 records.\n"
    assert ottla("consume", name, "-o", "earliest", "--no-follow").split() == ["late", "new"]
    everything = json.loads(ottla("topics", "delete-records", name, other, "--all", "-P", "0", "--json"))
    assert sorted(everything, key=lambda row: topics.index(row["topic"])) == [
        {"topic": name, "partition": 0, "deleted": 2, "first_offset": 3},
        {"topic": other, "partition": 0, "deleted": 3, "first_offset": 3},
    ]
    beyond = ottla("topics", "delete-records", name, other, "--before-offset", "4", code=1)
    assert f"--before-offset 4 is beyond the end of partition {name}-0, which is 3; nothing was deleted" in beyond
    missing = ottla("topics", "delete-records", name, "--all", "-P", "7", code=1)
    assert f"Topic {name} has no partition 7: it has 1 partition, numbered from 0" in missing


def test_deletion_at_a_terminal_is_asked_for(ottla: Ottla, topics: list[str], terminal: Terminal) -> None:
    name, other = topics
    terminal("n\n")
    refused = ottla("topics", "delete-records", name, other, "--before-offset", "2", code=1)
    assert f"Delete 4 records of topics {name}, {other}? [y/N]:" in refused
    assert "Nothing was deleted" in refused
    refused = ottla("topics", "delete", name, other, code=1)
    assert f"Delete topics {name}, {other} and all records? [y/N]:" in refused
    terminal("y\n")
    assert "Deleted 2 records." in ottla("topics", "delete-records", name, "--before-offset", "2")
    terminal("")
    assert "?" not in ottla("topics", "delete-records", name, "--before-offset", "3", "--yes")
    assert ottla("topics", "delete", name, "-y") == f"Deleted topic {name}.\n"


def test_a_topic_that_is_not_there_may_be_another(ottla: Ottla, topics: list[str]) -> None:
    for command in (["consume"], ["topics", "describe"], ["topics", "delete-records", "--all"]):
        assert f"Did you mean '{topics[0]}'?" in ottla(*command, topics[0].replace("orders", "ordres"), code=1)


def test_client_configs_reach_the_client(ottla: Ottla, topics: list[str]) -> None:
    first = "consume", topics[0], "-o", "earliest", "--no-follow"
    assert ottla(*first, "-X", "max.poll.records=1").split() == ["old", "late", "new"]
    assert "max.poll.records: " in ottla(*first, "-X", "max.poll.records=many", code=1)


class Typed:
    """A context of a command line that is being typed."""

    def __init__(self, parent: Typed | None = None, **params: object) -> None:
        self.parent = parent
        self.params = params


def test_names_are_completed(broker: Broker, ottla: Ottla, topics: list[str]) -> None:
    ottla("consume", topics[0], "-g", f"readers-{topics[0]}", "-o", "earliest", "-n", "1")
    for typed in (Typed(Typed(bootstrap=broker.bootstrap)), Typed(Typed(bootstrap="x:1"), bootstrap=broker.bootstrap)):
        assert complete_topics(typed, topics[0][:8]) == [topics[0]]  # type: ignore[arg-type]
        assert complete_groups(typed, "readers-" + topics[0][:8]) == [f"readers-{topics[0]}"]  # type: ignore[arg-type]
    assert complete_topics(Typed(bootstrap="127.0.0.1:1"), "") == []  # type: ignore[arg-type]
    assert complete_topics(Typed(bootstrap="nonsense"), "") == []  # type: ignore[arg-type]
