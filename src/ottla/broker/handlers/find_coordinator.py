"""FindCoordinator (10): the broker that coordinates a group, or the transactions of a transactional id."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.coordinators import coordinator_topics
from ottla.broker.handlers import handles
from ottla.broker.metadata.availability import leader_of
from ottla.broker.requests.api import RequestContext
from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordinator.partitioning import partition_for
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: TRANSACTIONS_TOPIC}
"""The coordinator's topic by the type of key."""
_SEVERAL_KEYS_SINCE: Final = 4
_NO_NODE: Final = -1


@handles(FindCoordinatorRequest)
def find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    topic = _TOPICS.get(request.key_type)
    if topic is not None and coordinator_topics.is_missing(broker, topic):
        return _with_new_topic(broker, topic, request, context)
    return _response(broker, request, context)


async def _with_new_topic(
    broker: Broker, topic: str, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    await coordinator_topics.create(broker, topic)
    return _response(broker, request, context)


def _response(broker: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    several = context.version >= _SEVERAL_KEYS_SINCE
    keys = request.coordinator_keys if several else [request.key]
    found = [_coordinator(broker, request.key_type, key, context) for key in keys]
    if several:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(broker: Broker, key_type: int, key: str, context: RequestContext) -> Coordinator:
    topic = _TOPICS.get(key_type)
    if topic is None:
        return _nobody(key, ErrorCode.INVALID_REQUEST)
    count = broker.coordinators[topic].log.partition_count
    if not count:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    brokers = broker.metadata.brokers_of(context.listener)
    index = partition_for(key, count)
    partition = broker.metadata.partition(topic, index)
    endpoint = None if partition is None else brokers.get(leader_of(partition, brokers.keys()))
    if endpoint is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker.replicas.get(topic, index)  # creates its log now if necessary: requests to the coordinator come next
    return Coordinator(key=key, node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, error: ErrorCode) -> Coordinator:
    message = error.description
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error, error_message=message)
