"""Balanced assignors that let members keep their partitions: `sticky`, which stops the whole group for a rebalance, and
`cooperative-sticky`, where members continue to consume the partitions that they keep.

They differ in how a member reports its previous partitions. With `sticky`, it has given up everything before it joins,
and sends its last assignment in the user data, as Java's does. With `cooperative-sticky`, it still owns them, and lists
them in its subscription.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors.assignor import NO_GENERATION, Assignment, GroupMember, Topics
from ottla.client.membership.assignors.balance import balance
from ottla.wire.codec import decode_from, encode
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolPartitions
from ottla.wire.schema import Data, array, int32


class StickyUserData(Data, versions="0-1"):
    """The last assignment, since v1 with its generation (KIP-341). It is sent without its version: a reader that cannot
    parse it as v1 parses it as v0."""

    previous_assignment: list[ConsumerProtocolPartitions] = array(ConsumerProtocolPartitions)
    generation: int = int32("1+", default=-1, ignorable=True)


class Claim(NamedTuple):
    """The partitions that a member says it had."""

    member_id: str
    partitions: Collection[TopicPartition]
    generation: int


_GENERATION_BYTES: Final = 4


class StickyAssignor:
    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:
        if owned is None:
            return None
        return encode(StickyUserData(previous_assignment=by_topic(owned), generation=generation), 1)

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        claims = [_previous(member) for member in members]
        return balance(topics, _subscriptions(members), believed(topics, members, claims))


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:  # noqa: ARG002
        # Only for members that cannot read the generation from the subscription.
        return generation.to_bytes(_GENERATION_BYTES, "big", signed=True)

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        claims = [Claim(member.member_id, member.owned, _generation(member)) for member in members]
        assignment = balance(topics, _subscriptions(members), believed(topics, members, claims))
        # A partition that moves is assigned to nobody until its owner has given it up; the owner rejoins after that.
        # Every claim counts here, even an old one: the member that makes it may still be consuming.
        owners: dict[TopicPartition, set[str]] = {}
        for member in members:
            for partition in member.owned:
                owners.setdefault(partition, set()).add(member.member_id)
        return {
            member_id: [one for one in partitions if owners.get(one, {member_id}) <= {member_id}]
            for member_id, partitions in assignment.items()
        }


def by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolPartitions]:
    """In the form that is sent: by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [ConsumerProtocolPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def flattened(topics: Iterable[ConsumerProtocolPartitions]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, index) for one in topics for index in one.partitions]


def believed(topics: Topics, members: Sequence[GroupMember], claims: Iterable[Claim]) -> dict[TopicPartition, str]:
    """Decides who may keep a partition: the claim of the latest generation wins; two claims in one generation
    cancel."""
    subscriptions = _subscriptions(members)
    owners: dict[TopicPartition, str] = {}
    generations: dict[TopicPartition, int] = {}
    for member_id, partitions, generation in claims:
        for partition in partitions:
            exists = 0 <= partition.partition < len(topics.get(partition.topic, ()))
            if not exists or partition.topic not in subscriptions[member_id]:
                continue
            known = generations.get(partition)
            if known is None or generation > known:
                generations[partition] = generation
                owners[partition] = member_id
            elif generation == known and owners.get(partition) != member_id:
                owners.pop(partition, None)
    return owners


def _subscriptions(members: Sequence[GroupMember]) -> Mapping[str, frozenset[str]]:
    return {member.member_id: member.topics for member in members}


def _generation(member: GroupMember) -> int:
    """From the subscription, or, for older clients, from the user data."""
    data = member.user_data
    if member.generation == NO_GENERATION and data is not None and len(data) == _GENERATION_BYTES:
        return int.from_bytes(data, "big", signed=True)
    return member.generation


def _previous(member: GroupMember) -> Claim:
    for version in (1, 0):
        try:
            data, _ = decode_from(StickyUserData, version, member.user_data or b"")
        except ProtocolError:
            continue
        return Claim(member.member_id, flattened(data.previous_assignment), data.generation)
    return Claim(member.member_id, (), NO_GENERATION)
