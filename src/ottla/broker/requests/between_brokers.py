"""The APIs that only brokers use among themselves."""

from __future__ import annotations

from typing import Final

from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.schema import Request

BETWEEN_BROKERS: Final[frozenset[type[Request]]] = frozenset(
    {
        AllocateProducerIdsRequest,
        AlterPartitionRequest,
        ControlledShutdownRequest,
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
    }
)
"""A lone broker serves none of them."""
