"""The records of `__consumer_offsets`: committed offsets, classic groups, and groups of KIP-848.

Key and value each begin with their version as an int16. The version of a key is the type of the record, so the key of
each type has a single one (offset commits, the oldest, have two that mean the same); values count theirs from 0. A null
value deletes what the key names.

Since a value is read by older brokers after a downgrade, new fields come as tagged ones, in versions that exist
already (KIP-915).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    INT32,
    STRING,
    Data,
    Struct,
    array,
    binary,
    int8,
    int32,
    int64,
    nested,
    string,
    uuid,
)

# --- offsets --------------------------------------------------------------------------------------------------------


class OffsetCommitKey(Data, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Data, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


# --- classic groups -------------------------------------------------------------------------------------------------


class GroupMetadataKey(Data, versions="2"):
    group: str = string()


class GroupMetadataMember(Struct):
    """`subscription` and `assignment` are in the form of `consumer_protocol`, if the members are consumers."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Data, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


# --- groups of KIP-848 ----------------------------------------------------------------------------------------------


class ConsumerGroupMetadataKey(Data, versions="3"):
    group_id: str = string()


class ConsumerGroupMetadataValue(Data, versions="0", flexible="0+"):
    """`metadata_hash` is a hash of the group's topics: when it changes, a rebalance is due (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Data, versions="4"):
    group_id: str = string()


class ConsumerGroupPartition(Struct):
    partition: int = int32()
    racks: list[str] = array(STRING)


class ConsumerGroupTopic(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[ConsumerGroupPartition] = array(ConsumerGroupPartition)


class ConsumerGroupPartitionMetadataValue(Data, versions="0", flexible="0+"):
    """What the group's topics looked like: superseded by the hash above, still found in older logs."""

    topics: list[ConsumerGroupTopic] = array(ConsumerGroupTopic)


class ConsumerGroupMemberMetadataKey(Data, versions="5"):
    group_id: str = string()
    member_id: str = string()


class ClassicMemberProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicMemberProtocol] = array(ClassicMemberProtocol)


class ConsumerGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    # Set: a member of the classic protocol in this group. Null, not absent, for one of the consumer protocol.
    classic_member_metadata: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Data, versions="6"):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    """The timestamp came with KIP-1263."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Data, versions="7"):
    group_id: str = string()
    member_id: str = string()


class TargetTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Data, versions="8"):
    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)
    # One for each of `partitions`, where they are kept.
    assignment_epochs: list[int] | None = array(INT32, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ConsumerGroupRegularExpressionKey(Data, versions="16"):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Data, versions="0", flexible="0+"):
    """The topics that matched, when they were looked up in metadata of `version`."""

    topics: list[str] = array(STRING)
    version: int = int64()
    timestamp: int = int64()
