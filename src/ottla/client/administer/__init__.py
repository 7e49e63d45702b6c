"""The admin client: topics, configs, partitions, log directories, brokers, groups, transactions.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=6)])
        offsets = admin.list_offsets({TopicPartition("orders", 0): LATEST})

`AsyncAdmin` has the same methods as coroutines. Methods that take several things carry each as far as it goes; then
they return a dict of all results, or raise one `SomeRefusedError` that has the refusals and the results by name. See
`outcomes`.
"""

from __future__ import annotations

from ottla.base.config_descriptions import ConfigSource, ConfigType, ResourceType
from ottla.base.operations import Operation
from ottla.client.administer.admin import Admin
from ottla.client.administer.async_admin import AsyncAdmin
from ottla.client.administer.brokers import ClusterDescription, FeatureMetadata, Node, VersionRange
from ottla.client.administer.configs import Append, Change, ConfigEntry, ConfigResource, ConfigSynonym, Subtract
from ottla.client.administer.groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
)
from ottla.client.administer.log_dirs import LogDirDescription, Replica, ReplicaInLogDir, ReplicaPlace
from ottla.client.administer.outcomes import SomeRefusedError
from ottla.client.administer.partitions import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ElectionType,
    ListedOffset,
    ProducerState,
    Reassignment,
)
from ottla.client.administer.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from ottla.client.administer.transactions import (
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from ottla.client.offsets import EARLIEST, LATEST, OffsetAndMetadata, Place

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "Admin",
    "Append",
    "AsyncAdmin",
    "Change",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "ElectionType",
    "FeatureMetadata",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "HangingTransaction",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "Operation",
    "PartitionDescription",
    "Place",
    "ProducerState",
    "Reassignment",
    "Replica",
    "ReplicaInLogDir",
    "ReplicaPlace",
    "ResourceType",
    "SomeRefusedError",
    "Subtract",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "VersionRange",
]
