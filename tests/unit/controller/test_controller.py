"""The controller on a real tree: what it makes, what it refuses, and what a start repairs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, format_uuid
from ottla.controller.errors import ControllerError
from ottla.controller.state import NO_LEADER, PartitionState, TopicState
from ottla.controller.wanted_topics import PARTITIONS_AT_ONCE_MAX, NewPartitionCount, WantedTopic
from ottla.zookeeper.node_json import ZnodeError
from support.brokers.lone_broker import BROKER_ID, CountingTree, LoneBroker, on_tree

HERE = (BROKER_ID,)
LED = PartitionState(HERE, BROKER_ID, leader_epoch=0, isr=HERE, controller_epoch=1, version=0)


def refused(outcome: object) -> ErrorCode:
    assert isinstance(outcome, ControllerError)
    return outcome.code


async def put(broker: LoneBroker, path: str, data: bytes) -> None:
    """Writes a node as if another program had."""
    await broker.tree.tree.create(path, data, parents=True)


# --- making topics --------------------------------------------------------------------------------------------------


@on_tree
async def test_a_topic_is_in_the_tree_as_kafka_keeps_it(broker: LoneBroker) -> None:
    before = set(await broker.all_paths())
    topic = await broker.create("events", 2, {"retention.ms": "5"})
    topic_id = format_uuid(topic.topic_id)
    assert set(await broker.all_paths()) - before == {
        "/brokers/topics/events",
        "/brokers/topics/events/partitions",
        "/brokers/topics/events/partitions/0",
        "/brokers/topics/events/partitions/0/state",
        "/brokers/topics/events/partitions/1",
        "/brokers/topics/events/partitions/1/state",
        "/config/topics/events",
    }
    assert (
        await broker.data("/brokers/topics/events")
        == (
            f'{{"partitions":{{"0":[4],"1":[4]}},"topic_id":"{topic_id}",'
            '"adding_replicas":{},"removing_replicas":{},"version":3}'
        ).encode()
    )
    assert await broker.data("/brokers/topics/events/partitions/1/state") == (
        b'{"controller_epoch":1,"leader":4,"version":1,"leader_epoch":0,"isr":[4]}'
    )
    assert await broker.data("/config/topics/events") == b'{"version":1,"config":{"retention.ms":"5"}}'


@on_tree
async def test_the_broker_is_notified_after_everything_is_written(broker: LoneBroker) -> None:
    topic = await broker.create("events", 3)
    assert topic.partitions == (LED, LED, LED)
    assert topic.topic_id != ZERO_UUID
    assert broker.applied == [(topic, frozenset({0, 1, 2}))]
    assert broker.controller.topics == {"events": topic}


@on_tree
async def test_many_topics_are_one_transaction(broker: LoneBroker) -> None:
    broker.tree.calls.clear()
    outcomes = await broker.controller.create_topics([WantedTopic(f"t{number}", 2, 1) for number in range(50)])
    assert [outcome.name for outcome in outcomes if isinstance(outcome, TopicState)] == [f"t{n}" for n in range(50)]
    assert broker.tree.calls == ["get_many", "transact"]
    assert len(broker.applied) == 50


@on_tree
async def test_what_cannot_be_made_does_not_stop_the_rest(broker: LoneBroker) -> None:
    bad, good, other_bad = await broker.controller.create_topics(
        [WantedTopic("a b", 1, 1), WantedTopic("good", 1, 1), WantedTopic("bad", 0, 1)]
    )
    assert refused(bad) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(other_bad) is ErrorCode.INVALID_PARTITIONS
    assert broker.applied == [(good, frozenset({0}))]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (WantedTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (WantedTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (WantedTopic("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (WantedTopic("there", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (WantedTopic("dot_ted", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (WantedTopic("new", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (WantedTopic("new", PARTITIONS_AT_ONCE_MAX + 1, 1), ErrorCode.POLICY_VIOLATION),
        (WantedTopic("new", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
        (WantedTopic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (WantedTopic("new", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (WantedTopic("new", 1, None, [(0, HERE)]), ErrorCode.INVALID_REQUEST),
        (WantedTopic("new", None, 1, [(0, HERE)]), ErrorCode.INVALID_REQUEST),
        (WantedTopic("new", None, None, [(1, HERE)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WantedTopic("new", None, None, [(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WantedTopic("new", 1, 1, configs={"retention.sm": "1"}), ErrorCode.INVALID_CONFIG),
        (WantedTopic("new", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    ],
)
@on_tree
async def test_what_is_refused(broker: LoneBroker, wanted: WantedTopic, code: ErrorCode) -> None:
    await broker.create("there")
    await broker.create("dot.ted")
    before = await broker.all_paths()
    for validate_only in (True, False):
        with pytest.raises(ControllerError) as error:
            await broker.controller.create_topic(wanted, validate_only=validate_only)
        assert error.value.code is code
        assert error.value.reason
    assert await broker.all_paths() == before
    assert len(broker.applied) == 2


@on_tree
async def test_a_wrong_config_names_the_right_one(broker: LoneBroker) -> None:
    with pytest.raises(ControllerError, match=r"retention\.sm.*did you mean retention\.ms"):
        await broker.create("new", configs={"retention.sm": "1"})


@on_tree(log_cleaner_min_compaction_lag_ms="1000")
async def test_configs_are_checked_with_those_of_the_broker(broker: LoneBroker) -> None:
    with pytest.raises(ControllerError) as error:
        await broker.create("new", configs={"max.compaction.lag.ms": "999"})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    await broker.create("new", configs={"max.compaction.lag.ms": "1001"})


@on_tree
async def test_names_collide_within_a_request_too(broker: LoneBroker) -> None:
    first, second = await broker.controller.create_topics([WantedTopic("a.b", 1, 1), WantedTopic("a_b", 1, 1)])
    assert isinstance(first, TopicState)
    assert refused(second) is ErrorCode.INVALID_TOPIC_EXCEPTION


@on_tree
async def test_a_request_makes_only_so_many_partitions(broker: LoneBroker) -> None:
    most = PARTITIONS_AT_ONCE_MAX
    wanted = [WantedTopic("a", most - 1, 1), WantedTopic("b", 2, 1), WantedTopic("c", 1, 1)]
    first, second, third = await broker.controller.create_topics(wanted, validate_only=True)
    assert isinstance(first, TopicState)
    assert refused(second) is ErrorCode.POLICY_VIOLATION
    assert isinstance(third, TopicState)


@on_tree
async def test_validation_tells_what_would_be(broker: LoneBroker) -> None:
    topic = await broker.controller.create_topic(
        WantedTopic("new", None, None, [(1, HERE), (0, HERE)]), validate_only=True
    )
    assert topic == TopicState("new", ZERO_UUID, (LED, LED), {})
    assert broker.applied == []
    assert await broker.data("/brokers/topics/new") is None


@on_tree
async def test_a_config_that_was_there_before_its_topic_is_replaced(broker: LoneBroker) -> None:
    await put(broker, "/config/topics/early", b'{"version":1,"config":{"retention.ms":"7"}}')
    await broker.create("early", configs={"retention.bytes": "8"})
    assert await broker.data("/config/topics/early") == b'{"version":1,"config":{"retention.bytes":"8"}}'


@on_tree
async def test_concurrent_creations_of_the_same_topic(broker: LoneBroker) -> None:
    outcomes = await asyncio.gather(*(broker.create("one") for _ in range(5)), return_exceptions=True)
    made = [outcome for outcome in outcomes if isinstance(outcome, TopicState)]
    late = [outcome for outcome in outcomes if not isinstance(outcome, TopicState)]
    assert len(made) == 1
    assert [refused(outcome) for outcome in late] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4


@on_tree
async def test_a_change_is_finished_when_its_asker_is_gone(broker: LoneBroker) -> None:
    asker = asyncio.create_task(broker.create("kept"))
    await asyncio.sleep(0)  # begun
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    await broker.controller.close()
    assert [topic.name for topic, _ in broker.applied] == ["kept"]
    assert await broker.data("/brokers/topics/kept") is not None


@on_tree
async def test_a_tree_that_fails_is_reported_and_changes_nothing(broker: LoneBroker) -> None:
    broker.tree.failure = CoordinationError("/brokers", "the disk is full")
    with pytest.raises(ControllerError, match="the disk is full") as error:
        await broker.create("unlucky")
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.applied == []
    broker.tree.failure = None
    await broker.create("unlucky")


# --- configs and partitions -----------------------------------------------------------------------------------------


@on_tree
async def test_configs_are_replaced(broker: LoneBroker) -> None:
    topic = await broker.create("events", configs={"retention.ms": "5"})
    changed = await broker.update_configs("events", {"retention.bytes": "6"})
    assert changed == replace(topic, configs={"retention.bytes": "6"})
    assert broker.applied[-1] == (changed, frozenset())
    assert await broker.data("/config/topics/events") == b'{"version":1,"config":{"retention.bytes":"6"}}'
    grown = await broker.controller.create_partitions("events", 2)
    assert grown.configs == {"retention.bytes": "6"}


@on_tree
async def test_a_topic_that_never_had_a_config_gets_one(broker: LoneBroker) -> None:
    await put(broker, "/brokers/topics/events", b'{"partitions":{"0":[4]},"version":2}')
    later = await broker.restarted()
    await later.update_configs("events", {"retention.ms": "5"})
    assert await later.data("/config/topics/events") == b'{"version":1,"config":{"retention.ms":"5"}}'


@on_tree
async def test_wrong_configs_are_not_written(broker: LoneBroker) -> None:
    await broker.create("events", configs={"retention.ms": "5"})
    with pytest.raises(ControllerError) as error:
        await broker.update_configs("events", {"retention.ms": "soon"})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert await broker.data("/config/topics/events") == b'{"version":1,"config":{"retention.ms":"5"}}'
    with pytest.raises(ControllerError) as error:
        await broker.update_configs("other", {})
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_tree
async def test_a_topic_grows(broker: LoneBroker) -> None:
    topic = await broker.create("events")
    grown = await broker.controller.create_partitions("events", 3)
    assert grown == replace(topic, partitions=(LED, LED, LED))
    assert broker.applied[-1] == (grown, frozenset({1, 2}))
    assert (await broker.restarted()).controller.topics == {"events": grown}
    by_hand = await broker.controller.create_partitions("events", 4, [HERE])
    assert len(by_hand.partitions) == 4


@pytest.mark.parametrize(
    ("name", "new_total", "assignments", "code"),
    [
        ("events", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("events", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("events", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("events", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
        ("other", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("events", 4, [HERE], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 4, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 3, [[BROKER_ID, BROKER_ID]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@on_tree
async def test_how_a_topic_does_not_grow(
    broker: LoneBroker, name: str, new_total: int, assignments: Sequence[Sequence[int]] | None, code: ErrorCode
) -> None:
    await broker.create("events", 2)
    with pytest.raises(ControllerError) as error:
        await broker.controller.create_partitions(name, new_total, assignments)
    assert error.value.code is code
    assert len(broker.applied) == 1


@on_tree
async def test_validation_of_growth_changes_nothing(broker: LoneBroker) -> None:
    topic = await broker.create("events")
    grown = await broker.controller.create_partitions("events", 2, validate_only=True)
    assert len(grown.partitions) == 2
    assert broker.controller.topics == {"events": topic}
    assert await broker.data("/brokers/topics/events/partitions/1") is None


@on_tree
async def test_many_topics_grow_and_are_configured_in_one_transaction_each(broker: LoneBroker) -> None:
    names = [f"t{number}" for number in range(20)]
    await broker.controller.create_topics([WantedTopic(name, 1, 1) for name in names])
    broker.tree.calls.clear()
    wanted = [NewPartitionCount(name, 3) for name in (*names, "absent")]
    *grown, unknown = await broker.controller.grow_topics(wanted)
    assert {len(topic.partitions) for topic in grown if isinstance(topic, TopicState)} == {3}
    assert refused(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.controller.close()
    assert broker.tree.calls == ["transact", "transact"]  # the second writes the leaders, after the answer
    broker.tree.calls.clear()
    configs = {**{name: {"retention.ms": "5"} for name in names}, "t3": {"retention.ms": "soon"}, "absent": {}}
    outcomes = await broker.controller.update_topic_configs(configs)
    assert [refused(outcomes[name]) for name in ("t3", "absent")] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.tree.calls == ["get_many", "transact"]
    assert {topic.configs.get("retention.ms") for topic in broker.controller.topics.values()} == {"5", None}
    later = await broker.restarted()
    assert later.controller.topics == broker.controller.topics


@on_tree
async def test_growth_is_answered_before_the_leaders_are_written_and_survives_a_crash(broker: LoneBroker) -> None:
    await broker.create("events", 1)
    await broker.create("other", 1)
    broker.tree.may_create_states.clear()
    grown = await broker.controller.create_partitions("events", 3)
    assert broker.applied[-1] == (grown, frozenset({1, 2}))
    assert await broker.data("/brokers/topics/events/partitions/1/state") is None
    later = await broker.restarted()
    found = later.controller.topics["events"]
    assert [(each.leader, each.leader_epoch, each.version) for each in found.partitions] == [(BROKER_ID, 0, 0)] * 3
    assert await later.data("/brokers/topics/events/partitions/2/state") is not None
    assert later.tree.calls.count("transact") == 1
    broker.tree.may_create_states.set()  # the crashed one's change ends too, or the fixture waits for it


@on_tree
async def test_leaders_that_could_not_be_written_are_written_by_the_next_change(broker: LoneBroker) -> None:
    await broker.create("events", 1)
    broker.tree.failure_of_states = CoordinationError("/brokers/topics/events", "no power")
    await broker.controller.create_partitions("events", 3)
    await broker.controller.close()
    broker.tree.failure_of_states = None
    lost = TopicPartition("events", 2)
    await broker.controller.replicas_failed([lost])
    assert broker.controller.topics["events"].partitions[2].leader == NO_LEADER
    assert b'"leader":-1' in (await broker.data("/brokers/topics/events/partitions/2/state") or b"")
    assert await broker.data("/brokers/topics/events/partitions/1/state") is None
    later = await broker.restarted()
    assert {each.leader for each in later.controller.topics["events"].partitions} == {BROKER_ID}


# --- deletion -------------------------------------------------------------------------------------------------------


@on_tree
async def test_nothing_is_left_of_a_deleted_topic(broker: LoneBroker) -> None:
    await broker.create("other")
    before = await broker.all_paths()
    topic = await broker.create("events", 3, {"retention.ms": "5"})
    await broker.controller.delete_topic("events")
    await broker.controller.close()
    assert await broker.all_paths() == before
    assert broker.removed == [topic]
    assert list(broker.controller.topics) == ["other"]
    with pytest.raises(ControllerError) as error:
        await broker.controller.delete_topic("events")
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_tree
async def test_a_deleted_name_is_free_again(broker: LoneBroker) -> None:
    first = await broker.create("a.b")
    await broker.controller.delete_topic("a.b")
    await broker.create("a_b")
    await broker.controller.delete_topic("a_b")
    assert (await broker.create("a.b")).topic_id != first.topic_id


@on_tree
async def test_an_interrupted_deletion_is_finished_by_the_next_start(broker: LoneBroker) -> None:
    before = await broker.all_paths()
    await broker.create("events", 2)
    broker.tree.failure_of_deletes = CoordinationError("/brokers/topics/events", "no power")
    await broker.controller.delete_topic("events")
    with pytest.raises(ControllerError, match="still being deleted") as error:
        await broker.create("events")
    assert [topic.name for topic in broker.removed] == ["events"]
    assert error.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    later = await broker.restarted()
    assert later.controller.topics == {}
    assert await later.all_paths() == before
    await later.create("events")


@on_tree
async def test_a_deletion_is_answered_before_the_replicas_are_gone(broker: LoneBroker) -> None:
    first = await broker.create("events")
    broker.may_delete.clear()
    await broker.controller.delete_topic("events")
    assert (broker.removed, broker.metadata.topic("events"), list(broker.controller.topics)) == ([], None, [])
    again = asyncio.ensure_future(broker.create("events"))  # waits for its turn, then finds the name free
    await asyncio.sleep(0)
    assert not again.done()
    broker.may_delete.set()
    assert (await again).topic_id != first.topic_id
    assert broker.removed == [first]


@on_tree
async def test_a_deletion_is_answered_before_the_host_begins_with_the_replicas(broker: LoneBroker) -> None:
    """The host closes thousands of files before it waits for anything."""
    topic = await broker.create("events")
    await broker.controller.delete_topic("events")
    assert broker.removed == []
    await broker.controller.close()
    assert broker.removed == [topic]


@on_tree
async def test_a_deletion_that_was_answered_survives_a_crash(broker: LoneBroker) -> None:
    await broker.create("events")
    broker.may_delete.clear()
    await broker.controller.delete_topic("events")
    later = LoneBroker(CountingTree(broker.tree.tree), broker.config.given)
    assert await later.controller.load() == []
    assert later.controller.deleted == ["events"]
    assert await later.data("/admin/delete_topics/events") == b""  # until the host has deleted the logs
    await later.controller.finish_deletions()
    assert await later.data("/admin/delete_topics/events") is None
    broker.may_delete.set()  # the crashed one's change ends too, or the fixture waits for it


@on_tree
async def test_many_topics_are_deleted_in_few_steps(broker: LoneBroker) -> None:
    names = [f"t{number}" for number in range(50)]
    await broker.controller.create_topics([WantedTopic(name, 2, 1) for name in names])
    broker.tree.calls.clear()
    outcomes = await broker.controller.delete_topics([*names, "t7", "absent"])
    assert outcomes[:51] == [None] * 51
    assert refused(outcomes[51]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.controller.close()
    assert broker.tree.calls == ["transact", "delete_trees"]
    assert [topic.name for topic in broker.removed] == names


@on_tree
async def test_other_changes_do_not_wait_for_the_rest_of_a_deletion(broker: LoneBroker) -> None:
    await broker.create("events")
    broker.may_delete.clear()
    await broker.controller.delete_topic("events")
    other = await broker.create("other")
    await broker.controller.delete_topic("other")
    assert broker.removed == []
    broker.may_delete.set()
    await broker.controller.close()
    assert [topic.name for topic in broker.removed] == ["events", "other"]
    assert broker.removed[-1] == other


@on_tree
async def test_deletions_one_after_the_other_share_their_last_step(broker: LoneBroker) -> None:
    names = [f"t{number}" for number in range(5)]
    await broker.controller.create_topics([WantedTopic(name, 1, 1) for name in names])
    broker.tree.calls.clear()
    broker.may_delete.clear()
    for name in names:
        await broker.controller.delete_topic(name)
    broker.may_delete.set()
    await broker.controller.close()
    assert broker.tree.calls.count("delete_trees") <= 2  # the first may have begun before the others came
    assert {topic.name for topic in broker.removed} == set(names)


@on_tree
async def test_a_deletion_that_cannot_be_written_is_refused(broker: LoneBroker) -> None:
    topic = await broker.create("events")
    broker.tree.failure = CoordinationError("/admin/delete_topics/events", "no power")
    with pytest.raises(ControllerError, match="no power"):
        await broker.controller.delete_topic("events")
    assert broker.controller.topics == {"events": topic}
    assert broker.metadata.topic("events") == topic


# --- start ----------------------------------------------------------------------------------------------------------


@on_tree
async def test_a_start_finds_everything_again(broker: LoneBroker) -> None:
    await broker.create("b", 2, {"retention.ms": "5"})
    await broker.create("a")
    later = await broker.restarted()
    assert later.controller.topics == broker.controller.topics
    assert later.controller.epoch == broker.controller.epoch + 1
    assert await later.data("/controller_epoch") == b"2"
    with pytest.raises(ControllerError) as error:
        await later.create("a")
    assert error.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


@on_tree
async def test_a_crash_before_the_broker_was_told(broker: LoneBroker) -> None:
    async def crash(topic: TopicState, *, new_partitions: frozenset[int]) -> None:
        raise RuntimeError(f"power cut before {topic.name} and {new_partitions} were told")

    broker.apply_topic = crash  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="power cut"):
        await broker.create("events", 2)
    later = await broker.restarted()
    assert [topic.partitions for topic in later.controller.topics.values()] == [(LED, LED)]


@on_tree
async def test_partitions_without_a_state_are_elected(broker: LoneBroker) -> None:
    """Kafka assigns first and elects later; so does whoever writes only the topic's node."""
    node = b'{"partitions":{"0":[4],"1":[9]},"topic_id":"uUg2Zd-9SS26oEH7ff61lg","version":3}'
    await put(broker, "/brokers/topics/events", node)
    (topic,) = (await broker.restarted()).controller.topics.values()
    assert topic.partitions[0] == replace(LED, controller_epoch=2)
    assert topic.partitions[1].leader == NO_LEADER
    assert topic.configs == {}
    state = b'{"controller_epoch":2,"leader":4,"version":1,"leader_epoch":0,"isr":[4]}'
    assert await broker.data("/brokers/topics/events/partitions/0/state") == state
    assert await broker.data("/brokers/topics/events/partitions/1/state") is None


@on_tree
async def test_a_topic_older_than_ids_gets_one(broker: LoneBroker) -> None:
    await put(broker, "/brokers/topics/old", b'{"version":1,"partitions":{"0":[4]}}')
    (topic,) = (await broker.restarted()).controller.topics.values()
    assert topic.topic_id != ZERO_UUID
    assert (await broker.restarted()).controller.topics["old"].topic_id == topic.topic_id


@pytest.mark.parametrize(
    ("state", "config", "leader", "leader_epoch", "isr"),
    [
        ('"leader":4,"leader_epoch":6,"isr":[4]', "{}", 4, 6, (4,)),  # it is back
        ('"leader":-1,"leader_epoch":6,"isr":[4]', "{}", 4, 7, (4,)),
        ('"leader":9,"leader_epoch":6,"isr":[9,4]', "{}", 4, 7, (4,)),
        ('"leader":9,"leader_epoch":6,"isr":[9]', "{}", 9, 6, (9,)),
        ('"leader":9,"leader_epoch":6,"isr":[9]', '{"unclean.leader.election.enable":"true"}', 4, 7, (4,)),
    ],
)
@on_tree
async def test_elections_at_the_start(
    broker: LoneBroker, state: str, config: str, leader: int, leader_epoch: int, isr: tuple[int, ...]
) -> None:
    await put(broker, "/brokers/topics/events", b'{"partitions":{"0":[9,4]},"version":2}')
    path = "/brokers/topics/events/partitions/0/state"
    await put(broker, path, f'{{"controller_epoch":1,"version":1,{state}}}'.encode())
    await put(broker, "/config/topics/events", f'{{"version":1,"config":{config}}}'.encode())
    (topic,) = (await broker.restarted()).controller.topics.values()
    (partition,) = topic.partitions
    assert (partition.leader, partition.leader_epoch, partition.isr) == (leader, leader_epoch, isr)
    node = await broker.tree.tree.get(path)
    assert node is not None
    assert node.version == partition.version == (0 if leader_epoch == 6 else 1)
    assert f'"leader_epoch":{leader_epoch}'.encode() in node.data
    # Nothing is left to be done, and what the versions say is right: the next start finds the same.
    assert (await broker.restarted()).controller.topics["events"] == topic


@on_tree
async def test_partitions_that_differ_only_in_how_often_they_were_written(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    path = "/brokers/topics/events/partitions/1/state"
    await broker.tree.tree.set(path, await broker.data(path) or b"")
    (topic,) = (await broker.restarted()).controller.topics.values()
    assert topic.partitions == (LED, replace(LED, version=1))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{", "must hold JSON"),
        (b'{"partitions":{"0":[4],"2":[4]}}', "without gaps"),
        (b'{"partitions":{}}', "none"),
    ],
)
@on_tree
async def test_a_damaged_node_is_named(broker: LoneBroker, data: bytes, what: str) -> None:
    await put(broker, "/brokers/topics/events", data)
    with pytest.raises(ZnodeError, match=f"/brokers/topics/events.*{what}"):
        await broker.restarted()


@on_tree
async def test_many_partitions_are_read_at_once(broker: LoneBroker) -> None:
    wanted = [WantedTopic(f"topic-{number}", 100, 1) for number in range(100)]
    await broker.controller.create_topics(wanted)
    later = LoneBroker(CountingTree(broker.tree.tree), {})
    topics = await later.controller.load()
    assert sum(len(topic.partitions) for topic in topics) == 10_000
    assert later.tree.calls.count("get_many") == 3
    assert len(later.tree.calls) == 7
    assert "transact" not in later.tree.calls  # nothing to repair


@on_tree
async def test_many_elections_are_few_transactions(broker: LoneBroker) -> None:
    (topic,) = await broker.controller.create_topics([WantedTopic("events", 2500, 1)])
    assert isinstance(topic, TopicState)
    await broker.controller.replicas_failed([TopicPartition("events", index) for index in range(2500)])
    later = LoneBroker(CountingTree(broker.tree.tree), {})
    (again,) = await later.controller.load()
    assert later.tree.calls.count("transact") == 3
    assert {(each.leader, each.leader_epoch, each.version) for each in again.partitions} == {(BROKER_ID, 2, 2)}


# --- elections and moves --------------------------------------------------------------------------------------------


async def foreign(broker: LoneBroker) -> LoneBroker:
    """Partition 0 is led here though another is preferred and gone, 1 is led by one who is gone."""
    node = b'{"partitions":{"0":[9,4],"1":[4,9]},"version":2}'
    await put(broker, "/brokers/topics/events", node)
    for index, state in enumerate(('"leader":4,"isr":[4]', '"leader":9,"isr":[9]')):
        data = f'{{"controller_epoch":1,"version":1,"leader_epoch":6,{state}}}'.encode()
        await put(broker, f"/brokers/topics/events/partitions/{index}/state", data)
    return await broker.restarted()


@on_tree
async def test_elections_that_are_not_needed(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    for unclean in (False, True):
        outcomes = await broker.controller.elect_leaders(None, unclean=unclean)
        assert {name: refused(outcome) for name, outcome in outcomes.items()} == {
            TopicPartition("events", 0): ErrorCode.ELECTION_NOT_NEEDED,
            TopicPartition("events", 1): ErrorCode.ELECTION_NOT_NEEDED,
        }
    assert len(broker.applied) == 1


@on_tree
async def test_elections_of_what_does_not_exist(broker: LoneBroker) -> None:
    await broker.create("events")
    names = [TopicPartition("events", 1), TopicPartition("events", -1), TopicPartition("other", 0)]
    outcomes = await broker.controller.elect_leaders(names, unclean=False)
    assert [refused(outcomes[name]) for name in names] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


@on_tree
async def test_an_unclean_election(broker: LoneBroker) -> None:
    later = await foreign(broker)
    first, second = TopicPartition("events", 0), TopicPartition("events", 1)
    preferred = await later.controller.elect_leaders(None, unclean=False)
    assert refused(preferred[first]) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refused(preferred[second]) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    unclean = await later.controller.elect_leaders(None, unclean=True)
    assert refused(unclean[first]) is ErrorCode.ELECTION_NOT_NEEDED
    assert unclean[second] is None
    ((topic, new_partitions),) = later.applied
    assert topic.partitions[1] == PartitionState((4, 9), 4, 7, (4,), controller_epoch=2, version=1)
    assert new_partitions == frozenset()
    assert (await later.restarted()).controller.topics["events"] == topic


@on_tree
async def test_replicas_whose_directory_failed_have_no_leader(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    lost = TopicPartition("events", 1)
    await broker.controller.replicas_failed([lost, TopicPartition("gone", 0)])
    topic, _ = broker.applied[-1]
    assert topic.partitions == (LED, replace(LED, leader=NO_LEADER, leader_epoch=1, version=1))
    for unclean, code in ((False, "PREFERRED_LEADER_NOT_AVAILABLE"), (True, "ELIGIBLE_LEADERS_NOT_AVAILABLE")):
        outcomes = await broker.controller.elect_leaders([lost], unclean=unclean)
        assert refused(outcomes[lost]).name == code
    await broker.controller.replicas_failed([lost])
    assert len(broker.applied) == 2
    later = await broker.restarted()
    back = replace(LED, leader_epoch=2, version=2, controller_epoch=2)
    assert later.controller.topics["events"].partitions == (LED, back)


@on_tree
async def test_a_move_to_where_it_is_does_nothing(broker: LoneBroker) -> None:
    await broker.create("events")
    await broker.controller.reassign(TopicPartition("events", 0), HERE, may_change_factor=False)
    assert len(broker.applied) == 1


@pytest.mark.parametrize(
    ("name", "replicas", "code"),
    [
        (TopicPartition("events", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("other", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("events", 0), [9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicPartition("events", 0), [BROKER_ID, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicPartition("events", 0), [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicPartition("events", 0), [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicPartition("events", 1), HERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("other", 0), HERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@on_tree
async def test_moves_that_cannot_be(
    broker: LoneBroker, name: TopicPartition, replicas: Sequence[int] | None, code: ErrorCode
) -> None:
    await broker.create("events")
    with pytest.raises(ControllerError) as error:
        await broker.controller.reassign(name, replicas)
    assert error.value.code is code
    assert len(broker.applied) == 1


@on_tree
async def test_a_broker_that_is_gone_can_be_left_out(broker: LoneBroker) -> None:
    later = await foreign(broker)
    with pytest.raises(ControllerError) as error:
        await later.controller.reassign(TopicPartition("events", 0), HERE, may_change_factor=False)
    assert error.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(ControllerError, match="is in sync") as error:
        await later.controller.reassign(TopicPartition("events", 1), HERE)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    await later.controller.reassign(TopicPartition("events", 0), HERE)
    ((topic, _),) = later.applied
    assert topic.partitions[0] == PartitionState(HERE, 4, 7, HERE, controller_epoch=2, version=1)
    assert (await later.restarted()).controller.topics["events"] == topic


@on_tree
async def test_a_topic_does_not_grow_while_it_is_moved(broker: LoneBroker) -> None:
    node = b'{"partitions":{"0":[4,9]},"adding_replicas":{"0":[9]},"removing_replicas":{},"version":2}'
    await put(broker, "/brokers/topics/events", node)
    later = await broker.restarted()
    with pytest.raises(ControllerError) as error:
        await later.controller.create_partitions("events", 2)
    assert error.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert b'"adding_replicas":{"0":[9]}' in (await later.data("/brokers/topics/events") or b"")
