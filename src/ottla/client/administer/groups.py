"""Consumer groups: list, describe, delete, remove members."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.base.operations import Operation
from ottla.client.administer.coordinators import CoordinatedArea
from ottla.client.administer.kafka_name import KafkaName
from ottla.client.administer.operations import operations_of
from ottla.client.administer.outcomes import known, refusal, version_of
from ottla.client.errors import RefusedError, raise_if_refused
from ottla.net.client_connection import ClientConnection
from ottla.wire.codec import decode_from
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_OPERATIONS_SINCE: Final = 3
_SEVERAL_LEAVE_SINCE: Final = 3
_VERSION_BYTES: Final = 2
_CONSUMERS: Final = "consumer"
"""The protocol type of consumers in classic groups."""
_NOT_OF_THIS_KIND: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupState(KafkaName):
    """The state of a group. Classic groups rebalance; groups of the consumer protocol assign and reconcile."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    DEAD = "Dead"


class GroupType(KafkaName):
    """The protocol of a group."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group. Brokers before Kafka 2.6 do not report the state, those before 3.8 not the type."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType
    coordinator_id: int

    @property
    def is_simple(self) -> bool:
        """Whether it only stores offsets and never had members."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. In a classic group, subscription and assignment are known only while it is stable, and are
    raw bytes for members that are not consumers. Epochs and targets exist only in the consumer protocol (KIP-848)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    subscribed_topics: tuple[str, ...]
    subscribed_pattern: str | None = None
    rack_id: str | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    protocol: GroupType = GroupType.UNKNOWN
    metadata: bytes = b""
    assignment_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. `assignor`: the assignor in use, if it is determined."""

    group_id: str
    type: GroupType
    protocol_type: str
    state: GroupState
    assignor: str
    coordinator_id: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[Operation] | None = None


class GroupsArea(CoordinatedArea):
    """Operations on groups."""

    async def list_groups(
        self, *, states: Collection[GroupState] = (), types: Collection[GroupType] = ()
    ) -> list[GroupListing]:
        """All groups by name; or those in one of these states and of one of these types."""
        since, why = (_STATES_SINCE, "list groups by state") if states else (0, "")
        since, why = (_TYPES_SINCE, "list groups by type") if types else (since, why)
        request = ListGroupsRequest(states_filter=[*map(str, states)], types_filter=[*map(str, types)])

        async def attempt() -> dict[str, GroupListing]:
            await self._cluster.refresh()
            found: dict[str, GroupListing] = {}
            for broker_id in list(self._cluster.brokers):
                answer = await self._ask(broker_id, request, ListGroupsResponse, since=since, why=why)
                raise_if_refused(answer.error_code, f"the groups of broker {broker_id}")
                for one in answer.groups:
                    state, kind = GroupState(one.group_state), GroupType(one.group_type)
                    found[one.group_id] = GroupListing(one.group_id, one.protocol_type, state, kind, broker_id)
            return found

        return [group for _, group in sorted((await self._cluster.retry(attempt)).items())]

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, GroupDescription]:
        """State and members of groups of either protocol."""

        async def attempt(broker_id: int, some: list[str]) -> dict[str, GroupDescription | RefusedError]:
            connection = await self._cluster.connection(broker_id)
            found: dict[str, GroupDescription | RefusedError] = {}
            if ConsumerGroupDescribeRequest.api_key in connection.served:
                request = ConsumerGroupDescribeRequest(
                    group_ids=some, include_authorized_operations=include_authorized_operations
                )
                answer = await connection.send(request, ConsumerGroupDescribeResponse)
                found = {
                    one.group_id: refusal(one.error_code, f"group {one.group_id}", one.error_message)
                    or _consumer_group(one, broker_id)
                    for one in answer.groups
                    if one.error_code not in _NOT_OF_THIS_KIND
                }
            rest = [group_id for group_id in some if group_id not in found]
            if rest:
                found.update(await _classic_groups(connection, broker_id, rest, include_authorized_operations))
            return found

        return await self._settle_at_coordinators(group_ids, attempt)

    async def describe_classic_groups(
        self, group_ids: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, GroupDescription]:
        """State and members of classic groups, of consumers or of others such as Kafka Connect."""

        async def attempt(broker_id: int, some: list[str]) -> dict[str, GroupDescription | RefusedError]:
            connection = await self._cluster.connection(broker_id)
            return await _classic_groups(connection, broker_id, some, include_authorized_operations)

        return await self._settle_at_coordinators(group_ids, attempt)

    async def delete_consumer_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups without members, and their committed offsets."""

        async def attempt(broker_id: int, some: list[str]) -> dict[str, RefusedError | None]:
            answer = await self._ask(broker_id, DeleteGroupsRequest(groups_names=some), DeleteGroupsResponse)
            return {one.group_id: refusal(one.error_code, f"group {one.group_id}") for one in answer.results}

        await self._settle_at_coordinators(group_ids, attempt)

    async def remove_members_from_consumer_group(
        self, group_id: str, instance_ids: Iterable[str] | None = None, *, reason: str = "removed by an admin"
    ) -> None:
        """Removes these static members from a classic group, or all members. A running member joins again."""
        members: dict[str, LeaveGroupMember] = {}
        if instance_ids is not None:
            for instance_id in instance_ids:
                members[instance_id] = LeaveGroupMember(group_instance_id=instance_id, reason=reason)
        else:
            group = (await self.describe_consumer_groups([group_id]))[group_id]
            for one in group.members:
                members[one.instance_id or one.member_id] = LeaveGroupMember(
                    member_id="" if one.instance_id else one.member_id, group_instance_id=one.instance_id, reason=reason
                )

        async def attempt(names: list[str]) -> dict[str, RefusedError | None]:
            request = LeaveGroupRequest(group_id=group_id, members=[members[name] for name in names])
            coordinator_id = await self._coordinator(group_id)
            why = "remove members"
            answer = await self._ask(coordinator_id, request, LeaveGroupResponse, since=_SEVERAL_LEAVE_SINCE, why=why)
            raise_if_refused(answer.error_code, f"group {group_id}")
            return {
                (name := one.group_instance_id or one.member_id): refusal(
                    one.error_code, f"member {name} of group {group_id}"
                )
                for one in answer.members
            }

        await self._settle(members, attempt)


async def _classic_groups(
    connection: ClientConnection, broker_id: int, group_ids: list[str], operations: bool
) -> dict[str, GroupDescription | RefusedError]:
    version = version_of(connection, DescribeGroupsRequest)
    request = DescribeGroupsRequest(
        groups=group_ids, include_authorized_operations=operations and version >= _OPERATIONS_SINCE
    )
    answer = await connection.send(request, DescribeGroupsResponse, version=version)
    return {
        group.group_id: refusal(_code(group), f"group {group.group_id}", group.error_message)
        or _classic_group(group, broker_id)
        for group in answer.groups
    }


def _code(group: DescribedGroup) -> int:
    """Brokers before Kafka 4.0 report a group that does not exist as dead, without an error."""
    is_dead = not group.error_code and GroupState(group.group_state) is GroupState.DEAD
    return ErrorCode.GROUP_ID_NOT_FOUND if is_dead else group.error_code


def _classic_group(group: DescribedGroup, broker_id: int) -> GroupDescription:
    has_consumers = group.protocol_type == _CONSUMERS
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group.protocol_type,
        GroupState(group.group_state),
        group.protocol_data,
        broker_id,
        tuple(_classic_member(one, has_consumers) for one in group.members),
        authorized_operations=operations_of(group.authorized_operations),
    )


def _classic_member(member: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if is_consumer:
        topics, assigned = _subscribed(member.member_metadata), _assigned(member.member_assignment)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assigned,
        topics,
        protocol=GroupType.CLASSIC,
        metadata=member.member_metadata,
        assignment_bytes=member.member_assignment,
    )


def _subscribed(blob: bytes) -> tuple[str, ...]:
    """These blobs come from members, not from brokers: if they cannot be decoded, the caller gets the bytes."""
    try:
        version = min(int.from_bytes(blob[:_VERSION_BYTES], "big"), ConsumerProtocolSubscription.versions.high)
        return tuple(decode_from(ConsumerProtocolSubscription, version, blob[_VERSION_BYTES:])[0].topics)
    except ProtocolError:
        return ()


def _assigned(blob: bytes) -> tuple[TopicPartition, ...]:
    try:
        version = min(int.from_bytes(blob[:_VERSION_BYTES], "big"), ConsumerProtocolAssignment.versions.high)
        topics = decode_from(ConsumerProtocolAssignment, version, blob[_VERSION_BYTES:])[0].assigned_partitions
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(one.topic, index) for one in topics for index in one.partitions))


def _consumer_group(group: DescribedConsumerGroup, broker_id: int) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        _CONSUMERS,
        GroupState(group.group_state),
        group.assignor_name,
        broker_id,
        tuple(map(_consumer, group.members)),
        known(group.group_epoch),
        known(group.assignment_epoch),
        operations_of(group.authorized_operations),
    )


def _consumer(member: DescribedConsumer) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
        member.rack_id,
        _partitions(member.target_assignment),
        member.member_epoch,
        {0: GroupType.CLASSIC, 1: GroupType.CONSUMER}.get(member.member_type, GroupType.UNKNOWN),
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )
