"""The APIs that only brokers use among themselves, and the listener on which requests of other brokers are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

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


def check_from_broker(broker: Broker, api: str, context: RequestContext) -> None:
    """Raises `BrokerError` for a request on another listener than that between brokers. Without authentication, the
    listener is what tells brokers and operators from clients."""
    wanted = broker.config.inter_broker_listener
    if context.listener != wanted:
        why = f"such requests are accepted only on listener {wanted}"
        broker.complaints.warning(
            f"{api} {context.client_host}",
            "refused %s of %s at %s on listener %s: %s",
            *(api, context.client_id or "a client", context.client_host, context.listener, why),
        )
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{api} is refused: {why}.")
