"""FindCoordinator (10): the broker that coordinates a group.

`__consumer_offsets` is created at the first request. Kafka answers meanwhile that no coordinator is available, and the
client retries; here the first response waits for the topic.

There are no transactions yet. A request for the coordinator of a transactional id gets an authorization error, because
all clients treat that as fatal: after "not available" they would retry until their timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.metadata.automatic_topics import NEW_TOPIC_WAIT_S, automatic_topic
from ottla.broker.metadata.availability import leader_of
from ottla.broker.requests.api import RequestContext
from ottla.controller.errors import ControllerError
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.partitioning import partition_for
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SEVERAL_KEYS_SINCE: Final = 4
_NO_NODE: Final = -1
NO_TRANSACTIONS: Final = "This broker does not support transactions yet: use a producer without transactional.id."


@handles(FindCoordinatorRequest)
def find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    if request.key_type == _GROUP and broker.metadata.topic(OFFSETS_TOPIC) is None:
        return _with_new_topic(broker, request, context)
    return _response(broker, request, context)


async def _with_new_topic(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    cache = broker.metadata
    wanted = automatic_topic(OFFSETS_TOPIC, broker.config, len(cache.brokers))
    reason = "automatically, for the offsets of consumer groups"
    try:
        (outcome,) = await broker.controller.auto_create_topics([wanted], reason)
    except ControllerError as error:
        outcome = error
    if isinstance(outcome, ControllerError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        _logger.error("%s could not be created, so no group can be served: %s", OFFSETS_TOPIC, outcome)
    else:  # if another request created it first, its leaders may still be unknown here
        log = broker.group_log
        await cache.until(
            lambda: (log.partition_count and cache.has_leaders(OFFSETS_TOPIC)) or None,
            NEW_TOPIC_WAIT_S,
        )
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
    if key_type == _TRANSACTION:
        return _nobody(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != _GROUP:
        return _nobody(key, ErrorCode.INVALID_REQUEST)
    count = broker.group_log.partition_count
    if not count:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    brokers = broker.metadata.brokers_of(context.listener)
    index = partition_for(key, count)
    partition = broker.metadata.partition(OFFSETS_TOPIC, index)
    endpoint = None if partition is None else brokers.get(leader_of(partition, brokers.keys()))
    if endpoint is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker.replicas.get(OFFSETS_TOPIC, index)  # creates its log now if necessary: requests of members come next
    return Coordinator(key=key, node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, error: ErrorCode, reason: str | None = None) -> Coordinator:
    message = reason or error.description
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error, error_message=message)
