"""Encodes and decodes the records of consumer groups.

Like Kafka 3.9, a group writes the partition counts and racks of its topics (kind 4), which every later version reads.
The hash that Kafka 4.1 and later write instead is ignored: such a group looks at its topics again with its first
heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors.members import Partition, Partitions
from ottla.coordinator.groups.consumer.member import ClassicFace, MemberState, MemberSubscription, Standing
from ottla.coordinator.groups.records import record_of
from ottla.coordinator.key_values import KeyValue
from ottla.wire.messages.group_records import (
    ClassicMemberMetadata,
    ClassicMemberProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTopic,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)

_STATES: Final = {state.value: state for state in MemberState}


class TopicShape(NamedTuple):
    topic_id: Uuid
    partition_count: int


class ResolvedPattern(NamedTuple):
    """The topics that matched a pattern, at a version of the topics."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@lru_cache(32)
def by_topic(partitions: Partitions) -> Mapping[Uuid, list[int]]:
    """Sorted. Cached, so never change it: the record and the response of a step use the same object."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in partitions:
        if topic_id in topics:
            topics[topic_id].append(index)
        else:
            topics[topic_id] = [index]
    for indexes in topics.values():
        indexes.sort()
    return dict(sorted(topics.items()))


def partitions_in(topics: Iterable[TargetTopicPartitions | CurrentTopicPartitions]) -> Partitions:
    # All in C: this runs for each member whenever a group is loaded or assigned.
    return frozenset(chain.from_iterable(zip(repeat(each.topic_id), each.partitions, strict=False) for each in topics))


# --- the group ------------------------------------------------------------------------------------------------------


def group_record(group_id: str, epoch: int | None) -> KeyValue:
    value = None if epoch is None else ConsumerGroupMetadataValue(epoch=epoch)
    return record_of(ConsumerGroupMetadataKey(group_id=group_id), value)


def topics_record(group_id: str, topics: Mapping[str, TopicShape] | None) -> KeyValue:
    value = None
    if topics is not None:
        value = ConsumerGroupPartitionMetadataValue(
            topics=[
                ConsumerGroupTopic(topic_id=shape.topic_id, topic_name=name, num_partitions=shape.partition_count)
                for name, shape in sorted(topics.items())
            ]
        )
    return record_of(ConsumerGroupPartitionMetadataKey(group_id=group_id), value)


def target_epoch_record(group_id: str, epoch: int | None) -> KeyValue:
    value = None if epoch is None else ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return record_of(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern | None) -> KeyValue:
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
    return record_of(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value)


# --- its members ----------------------------------------------------------------------------------------------------


def member_record(group_id: str, member_id: str, subscription: MemberSubscription | None) -> KeyValue:
    value = None
    if subscription is not None:
        classic = subscription.classic
        value = ConsumerGroupMemberMetadataValue(
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topic_names=sorted(subscription.topics),
            subscribed_topic_regex=subscription.pattern or "",
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            server_assignor=subscription.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicMemberProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        )
    return record_of(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def subscription_of(value: ConsumerGroupMemberMetadataValue) -> MemberSubscription:
    classic = value.classic_member_metadata
    return MemberSubscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicFace(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions | None) -> KeyValue:
    value = None
    if target is not None:
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(target).items()
            ]
        )
    return record_of(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def standing_record(group_id: str, member_id: str, standing: Standing | None) -> KeyValue:
    value = None
    if standing is not None:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=standing.epoch,
            previous_member_epoch=standing.previous_epoch,
            state=standing.state,
            assigned_partitions=_current(standing.assigned, standing.assignment_epochs),
            partitions_pending_revocation=_current(standing.revoking, standing.assignment_epochs),
        )
    return record_of(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _current(partitions: Partitions, epochs: Mapping[Partition, int]) -> list[CurrentTopicPartitions]:
    only = next(iter(epochs.values()), 0)
    is_one = len(set(epochs.values())) == 1  # if the member got all partitions in one step
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[only] * len(indexes) if is_one else [epochs[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in by_topic(partitions).items()
    ]


def standing_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Standing:
    assigned, epochs = _owned_in(value.assigned_partitions, value.member_epoch)
    revoking, epochs_of_revoking = _owned_in(value.partitions_pending_revocation, value.member_epoch)
    return Standing(
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.UNKNOWN),
        assigned,
        revoking,
        epochs_of_revoking | epochs if revoking else epochs,
    )


def _owned_in(topics: Sequence[CurrentTopicPartitions], member_epoch: int) -> tuple[Partitions, dict[Partition, int]]:
    """Partitions, and the epoch at which each was assigned. Kafka before 4.3 did not write these: then it is the member
    epoch, or 0 for a static member that left temporarily."""
    partitions = partitions_in(topics)
    epochs: list[int] = []
    for each in topics:
        count, written = len(each.partitions), each.assignment_epochs or ()
        epochs += written if len(written) == count else [max(member_epoch, 0)] * count
    if len(set(epochs)) == 1:  # the usual case; it does not hash the partitions again
        return partitions, dict.fromkeys(partitions, epochs[0])
    places = chain.from_iterable(zip(repeat(each.topic_id), each.partitions, strict=False) for each in topics)
    return partitions, dict(zip(places, epochs, strict=True))


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """In the order that Kafka expects."""
    return [
        standing_record(group_id, member_id, None),
        target_record(group_id, member_id, None),
        member_record(group_id, member_id, None),
    ]
