"""ElectLeaders (43): elects the preferred leader, or any live replica (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.controller.errors import ControllerError
from ottla.wire.messages.elect_leaders import (
    ElectLeadersPartitionResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


@handles(ElectLeadersRequest)
async def elect_leaders(broker: Broker, request: ElectLeadersRequest, _context: RequestContext) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        reason = f"Unknown election type {request.election_type}: use 0 for preferred or 1 for unclean."
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        ]
    try:
        outcomes = await broker.controller.elect_leaders(wanted, unclean=request.election_type == _UNCLEAN)
    except ControllerError as error:
        raise BrokerError(error.code, error.reason) from error
    by_topic: dict[str, list[ElectLeadersPartitionResponse]] = {}
    for (topic, index), refusal in outcomes.items():
        if wanted is None and refusal is not None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue  # a request for all partitions returns only those where something happened
        by_topic.setdefault(topic, []).append(
            ElectLeadersPartitionResponse(
                partition_id=index,
                error_code=refusal.code if refusal is not None else ErrorCode.NONE,
                error_message=refusal.reason if refusal is not None else None,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersTopicResponse(topic=topic, partition_result=results) for topic, results in by_topic.items()
        ]
    )
