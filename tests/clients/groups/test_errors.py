"""What a coordinator is told that is not so: each time Kafka's error, at once, and nobody else notices.

Which error it is was seen on Apache Kafka, on which these tests run as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.join_group import JoinGroupProtocol
from ottla.wire.messages.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from support.clients.confluent_client import ConfluentClient
from support.clients.peers import Peer
from support.groups.consumers import MakeTopic
from support.groups.speaker import Speaker, new_member_id, speaking

TIMEOUT_S = 30.0
Scenario = Callable[[Speaker], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(broker: Peer, group_id: str, topic: str, make_topic: MakeTopic, confluent: ConfluentClient) -> Play:
    """Runs a scenario with somebody who speaks of a group of the test's own."""
    make_topic(topic, 2)
    with confluent.consumer(topic) as consumer:  # its question makes the topic of groups, if it is not there
        consumer._consumer.committed([], 30)  # type: ignore[attr-defined]

    def run(scenario: Scenario) -> None:
        async def perform() -> None:
            async with speaking(broker.bootstrap, group_id, topic) as speaker:
                await asyncio.wait_for(scenario(speaker), TIMEOUT_S)

        asyncio.run(perform())

    return run


async def answered(**questions: Awaitable[int]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(await question) for name, question in questions.items()}


def test_what_a_classic_group_refuses_leaves_its_member_alone(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        member, generation = await say.become_member()
        assert await say.commit_all(member, generation, {0: (7, ""), 1: (8, "m" * 4096)}) == {0: 0, 1: 0}
        refused = await answered(
            commit_of_a_later_generation=say.commit(member, generation + 1),
            commit_of_an_earlier_generation=say.commit(member, generation - 1),
            commit_of_a_stranger=say.commit("stranger", generation),
            commit_of_nobody=say.commit("", -1),
            commit_of_a_false_instance=say.commit(member, generation, group_instance_id="stranger"),
            commit_with_too_much_metadata=say.commit(member, generation, "m" * 4097),
            heartbeat_of_a_later_generation=say.heartbeat(member, generation + 1),
            heartbeat_of_a_stranger=say.heartbeat("stranger", generation),
            heartbeat_of_a_false_instance=say.heartbeat(member, generation, "stranger"),
            sync_of_a_later_generation=say.sync(member, generation + 1),
            sync_of_a_stranger=say.sync("stranger", generation),
            sync_with_another_protocol=say.sync(member, generation, protocol_name="roundrobin"),
            sync_with_another_type=say.sync(member, generation, protocol_type="connect"),
            join_of_a_stranger=say.join(member_id="stranger"),
            join_with_another_protocol=say.join(
                protocols=[JoinGroupProtocol(name="roundrobin", metadata=b"")], group_instance_id="new"
            ),
            join_with_another_type=say.join(protocol_type="connect", group_instance_id="new"),
            join_without_a_protocol=say.join(protocols=[], group_instance_id="new"),
            join_for_too_short_a_time=say.join(session_timeout_ms=1),
            join_for_too_long_a_time=say.join(session_timeout_ms=2**31 - 1),
            leave_of_a_stranger=say.leave("stranger"),
            consumer_heartbeat_of_a_stranger=say.beat(new_member_id(), 3),
        )
        assert refused == {
            "commit_of_a_later_generation": ErrorCode.ILLEGAL_GENERATION,
            "commit_of_an_earlier_generation": ErrorCode.ILLEGAL_GENERATION,
            "commit_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit_of_nobody": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit_of_a_false_instance": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit_with_too_much_metadata": ErrorCode.OFFSET_METADATA_TOO_LARGE,
            "heartbeat_of_a_later_generation": ErrorCode.ILLEGAL_GENERATION,
            "heartbeat_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "heartbeat_of_a_false_instance": ErrorCode.UNKNOWN_MEMBER_ID,
            "sync_of_a_later_generation": ErrorCode.ILLEGAL_GENERATION,
            "sync_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "sync_with_another_protocol": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "sync_with_another_type": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "join_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "join_with_another_protocol": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "join_with_another_type": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "join_without_a_protocol": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "join_for_too_short_a_time": ErrorCode.INVALID_SESSION_TIMEOUT,
            "join_for_too_long_a_time": ErrorCode.INVALID_SESSION_TIMEOUT,
            "leave_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "consumer_heartbeat_of_a_stranger": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await say.heartbeat(member, generation) == ErrorCode.NONE
        assert await say.fetch() == (ErrorCode.NONE, {0: 7, 1: 8})

    play(scenario)


def test_one_partition_that_is_refused_does_not_hold_up_the_other(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        codes = await say.commit_all("", -1, {0: (1, "m" * 4097), 1: (2, "fits")})
        assert codes == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: ErrorCode.NONE}
        assert await say.commit_all("", -1, {2: (3, "")}) == {2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await say.fetch() == (ErrorCode.NONE, {0: -1, 1: 2})

    play(scenario)


def test_a_group_that_is_not_there(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        place = OffsetDeleteTopic(name=say.topic, partitions=[OffsetDeletePartition(partition_index=0)])
        request = OffsetDeleteRequest(group_id=say.group, topics=[place])
        deleted = await say.connection.send(request, OffsetDeleteResponse)
        assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        refused = await answered(
            heartbeat=say.heartbeat("stranger", 1),
            sync=say.sync("stranger", 1),
            leave=say.leave("stranger"),
            join=say.join(member_id="stranger"),
            commit=say.commit("stranger", 1),
            older_commit=say.commit("stranger", 1, version=8),
            consumer_heartbeat=say.beat(new_member_id(), 1),
        )
        assert refused == {
            "heartbeat": ErrorCode.UNKNOWN_MEMBER_ID,
            "sync": ErrorCode.UNKNOWN_MEMBER_ID,
            "leave": ErrorCode.UNKNOWN_MEMBER_ID,
            "join": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit": ErrorCode.GROUP_ID_NOT_FOUND,
            "older_commit": ErrorCode.ILLEGAL_GENERATION,
            "consumer_heartbeat": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await say.fetch() == (ErrorCode.NONE, {0: -1, 1: -1})

    play(scenario)


def test_a_group_without_a_name(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        say.group = ""
        refused = await answered(
            join=say.join(),
            sync=say.sync("stranger", 1),
            heartbeat=say.heartbeat("stranger", 1),
            leave=say.leave("stranger"),
            consumer_heartbeat=say.beat(new_member_id(), 0),
        )
        assert set(refused.values()) == {ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_REQUEST}
        assert refused["consumer_heartbeat"] == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_a_static_member_that_comes_again_fences_the_one_it_was(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        old, generation = await say.become_member(group_instance_id="one")
        again = await say.joining(group_instance_id="one")
        assert again.error_code == ErrorCode.NONE
        assert again.generation_id == generation
        assert again.member_id != old
        fenced = await answered(
            heartbeat=say.heartbeat(old, generation, "one"),
            sync=say.sync(old, generation, group_instance_id="one"),
            commit=say.commit(old, generation, group_instance_id="one"),
            join=say.join(member_id=old, group_instance_id="one"),
            leave=say.leave(old, "one"),
        )
        assert set(fenced.values()) == {ErrorCode.FENCED_INSTANCE_ID}
        assert await say.heartbeat(again.member_id, generation, "one") == ErrorCode.NONE

    play(scenario)


def test_what_a_group_of_the_consumer_protocol_refuses_leaves_its_member_alone(play: Play) -> None:
    async def scenario(say: Speaker) -> None:
        member = new_member_id()
        joined = await say.beating(member, 0, instance_id="one")
        assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, member)
        epoch = joined.member_epoch
        assert await say.commit(member, epoch) == ErrorCode.NONE
        refused = await answered(
            heartbeat_of_a_later_epoch=say.beat(member, epoch + 1),
            heartbeat_of_a_stranger=say.beat(new_member_id(), epoch),
            heartbeat_below_all_epochs=say.beat(member, -3),
            join_without_topics=say.beat(new_member_id(), 0, subscribed_topic_names=None),
            join_without_a_rebalance_timeout=say.beat(new_member_id(), 0, rebalance_timeout_ms=-1),
            join_that_owns_something=say.beat(new_member_id(), 0, topic_partitions=None),
            join_with_an_unknown_assignor=say.beat(new_member_id(), 0, server_assignor="unknown"),
            join_with_a_broken_pattern=say.beat(new_member_id(), 0, subscribed_topic_regex="[a"),
            join_under_a_name_that_is_used=say.beat(new_member_id(), 0, instance_id="one"),
            leave_for_a_while_without_a_name=say.beat(member, -2),
            leave_of_a_stranger=say.beat(new_member_id(), -1),
            commit_of_a_later_epoch=say.commit(member, epoch + 1),
            commit_of_a_stranger=say.commit(new_member_id(), epoch),
            commit_in_an_old_version=say.commit(member, epoch, version=8),
            commit_of_nobody=say.commit("", -1),
            classic_heartbeat=say.heartbeat(member, epoch),
            classic_sync=say.sync(member, epoch),
        )
        assert refused == {
            "heartbeat_of_a_later_epoch": ErrorCode.FENCED_MEMBER_EPOCH,
            "heartbeat_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "heartbeat_below_all_epochs": ErrorCode.INVALID_REQUEST,
            "join_without_topics": ErrorCode.INVALID_REQUEST,
            "join_without_a_rebalance_timeout": ErrorCode.INVALID_REQUEST,
            "join_that_owns_something": ErrorCode.INVALID_REQUEST,
            "join_with_an_unknown_assignor": ErrorCode.UNSUPPORTED_ASSIGNOR,
            "join_with_a_broken_pattern": ErrorCode.INVALID_REGULAR_EXPRESSION,
            "join_under_a_name_that_is_used": ErrorCode.UNRELEASED_INSTANCE_ID,
            "leave_for_a_while_without_a_name": ErrorCode.INVALID_REQUEST,
            "leave_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit_of_a_later_epoch": ErrorCode.STALE_MEMBER_EPOCH,
            "commit_of_a_stranger": ErrorCode.UNKNOWN_MEMBER_ID,
            "commit_in_an_old_version": ErrorCode.UNSUPPORTED_VERSION,
            "commit_of_nobody": ErrorCode.UNKNOWN_MEMBER_ID,
            "classic_heartbeat": ErrorCode.UNKNOWN_MEMBER_ID,
            "classic_sync": ErrorCode.UNKNOWN_MEMBER_ID,
        }
        silent = [JoinGroupProtocol(name="range", metadata=b"")]
        # Kafka has no code of its own for a subscription that can not be read.
        unreadable = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert await say.join(member_id="stranger", protocols=silent) in unreadable
        assert (await say.fetch(member, epoch + 1))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await say.fetch(new_member_id(), epoch))[0] == ErrorCode.UNKNOWN_MEMBER_ID
        assert await say.fetch(member, epoch) == (ErrorCode.NONE, {0: 5, 1: -1})
        assert await say.beat(member, epoch, instance_id="one") == ErrorCode.NONE

    play(scenario)
