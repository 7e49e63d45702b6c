"""What a broker gave out, by the names of a dialogue."""

from __future__ import annotations

import time

import pytest

from differential.symbols import NOBODY, UNKNOWN_NUMBER, Symbols, start_time_ms
from ottla.base.ids import ZERO_UUID, Uuid
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.join_group import JoinGroupResponse

ID = Uuid(b"i" * 16)


@pytest.fixture
def symbols() -> Symbols:
    return Symbols("diff-1-2", start_time_ms())


def test_names_are_new_in_every_run(symbols: Symbols) -> None:
    asked = {"topics": ["$topic:0", "plain"], "group": "$group:1"}
    assert symbols.resolve(asked) == {"topics": ["diff-1-2-t0", "plain"], "group": "diff-1-2-g1"}
    assert symbols.name_text("diff-1-2-t0") == "$-t0"


def test_unknown_ids_belong_to_nobody(symbols: Symbols) -> None:
    assert symbols.resolve("$id:0") == NOBODY
    assert symbols.resolve("$pid:p0") == UNKNOWN_NUMBER
    with pytest.raises(ValueError, match="is not a symbol"):
        symbols.resolve("$riddle:0")


def test_producers_are_learned_and_named(symbols: Symbols) -> None:
    step = {"api": "InitProducerId", "as": "p0", "request": {}}
    symbols.learn(step, InitProducerIdResponse(producer_id=4000))
    assert symbols.resolve("$pid:p0") == 4000
    assert symbols.resolve("$pid:p0:2") == 4002
    assert symbols.name_producer_id(4000) == "$pid:p0"
    assert symbols.name_producer_id(4001) == 4001


def test_members_are_distinguished_by_their_order(symbols: Symbols) -> None:
    step = {"api": "JoinGroup", "as": "m0", "request": {"group_id": "$group:0"}}
    symbols.learn(step, JoinGroupResponse(member_id="c-123", generation_id=3))
    assert symbols.resolve(["$member:m0", "$generation:0", "$generation:0:-1"]) == ["c-123", 3, 2]
    assert [symbols.name_member(each) for each in ("c-123", "c-456", "c-123")] == [
        "<member 0>",
        "<member 1>",
        "<member 0>",
    ]


def test_a_topic_made_again_has_another_id(symbols: Symbols) -> None:
    symbols.learn_topic("diff-1-2-t0", ID, [0])
    symbols.learn_topic("diff-1-2-t0", Uuid(b"j" * 16), [4])
    assert symbols.name_topic_id(ID) == "$id:0 before"
    assert symbols.name_topic_id(symbols.resolve("$id:0")) == "$id:0"
    assert symbols.name_topic_id(ZERO_UUID) == "$id:zero"
    assert symbols.resolve("$leader:0") == 4
    assert [symbols.name_leader_epoch(each) for each in (0, 4, 7, -1)] == ["<leader epoch>", "<leader epoch>", 7, -1]


def test_times_are_those_of_the_dialogue_or_now(symbols: Symbols) -> None:
    assert symbols.name_time(symbols.resolve("$time:5000")) == "$time:5000"
    assert symbols.name_time(time.time_ns() // 1_000_000) == "<now>"
    assert symbols.name_time(-1) == -1
