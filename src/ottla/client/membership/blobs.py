"""What members of a classic group exchange through the coordinator, which does not interpret it: the subscription that
each sends with JoinGroup, and the assignment that the leader sends to each.

Written in the newest version, as Java's client does; older clients read the fields that they know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.errors import ClientError
from ottla.client.membership.assignors import GroupMember
from ottla.client.membership.assignors.sticky import by_topic, flattened
from ottla.wire.codec import decode_from, encode_versioned
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)

_VERSION_BYTES = 2


def subscription_blob(member: GroupMember) -> bytes:
    """Encodes what a member says about itself; its ids are sent elsewhere."""
    subscription = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=by_topic(member.owned),
        generation_id=member.generation,
        rack_id=member.rack,
    )
    return encode_versioned(subscription, ConsumerProtocolSubscription.versions.high)


def read_subscription(member_id: str, instance_id: str | None, blob: bytes) -> GroupMember:
    subscription = _decode(ConsumerProtocolSubscription, blob, f"the subscription of member {member_id}")
    return GroupMember(
        member_id=member_id,
        topics=frozenset(subscription.topics),
        instance_id=instance_id,
        rack=subscription.rack_id,
        owned=flattened(subscription.owned_partitions),
        generation=subscription.generation_id,
        user_data=subscription.user_data,
    )


def assignment_blob(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(assigned_partitions=by_topic(partitions), user_data=None)
    return encode_versioned(assignment, ConsumerProtocolAssignment.versions.high)


def read_assignment(blob: bytes) -> list[TopicPartition]:
    """Decodes an assignment. A leader that does not mention a member leaves it with no bytes, not an empty
    assignment."""
    if not blob:
        return []
    return flattened(
        _decode(ConsumerProtocolAssignment, blob, "the assignment by the group's leader").assigned_partitions
    )


def _decode(message: type[M], blob: bytes, what: str) -> M:
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    try:
        # Newer versions only add fields at the end.
        return decode_from(message, min(version, message.versions.high), blob[_VERSION_BYTES:])[0]
    except ProtocolError as error:
        hint = "are all members of the group consumers?"
        raise ClientError(f"{what} cannot be decoded ({error}); {hint}") from error
