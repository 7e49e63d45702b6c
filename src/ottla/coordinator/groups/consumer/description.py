"""Describes a group for ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.groups.consumer.assignors.members import Partitions
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.records import by_topic
from ottla.coordinator.groups.group import TopicImage
from ottla.wire.messages.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)

_CLASSIC: Final = 0
_CONSUMER: Final = 1


def describe_group(group: ConsumerGroup, topics: TopicImage, default_assignor: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.favourite_assignor(None, None) or default_assignor,
        members=[
            _describe_member(member, group.target_of(member.member_id), topics) for member in group.members.values()
        ],
    )


def _describe_member(member: ConsumerMember, target: Partitions, topics: TopicImage) -> DescribedConsumer:
    subscription = member.subscription
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.standing.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.pattern or "",
        # What the member is still to give up is its own until it has done so.
        assignment=_named(member.standing.assigned | member.standing.revoking, topics),
        target_assignment=_named(target, topics),
        member_type=_CONSUMER if subscription.classic is None else _CLASSIC,
    )


def _named(partitions: Partitions, topics: TopicImage) -> DescribedAssignment:
    """Leaves out deleted topics."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )
