"""Creates the topic of a coordinator with the first request that needs it.

Kafka answers meanwhile that no coordinator is available, and the client retries; here the first response waits for the
topic.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.metadata.automatic_topics import NEW_TOPIC_WAIT_S, automatic_topic
from ottla.controller.errors import ControllerError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)


def is_missing(broker: Broker, topic: str) -> bool:
    return broker.metadata.topic(topic) is None


async def create(broker: Broker, topic: str) -> None:
    """Returns when the topic has leaders, or cannot be created, which is logged."""
    cache, coordinator = broker.metadata, broker.coordinators[topic]
    wanted = automatic_topic(topic, broker.config, len(cache.brokers))
    reason = f"automatically, for {coordinator.purpose}"
    try:
        (outcome,) = await broker.controller.auto_create_topics([wanted], reason)
    except ControllerError as error:
        outcome = error
    if isinstance(outcome, ControllerError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        # Clients try again all the time while ZooKeeper is away: the controller warns once.
        level = logging.DEBUG if outcome.code is ErrorCode.REQUEST_TIMED_OUT else logging.ERROR
        _logger.log(level, "%s, for %s, could not be created: %s", topic, coordinator.purpose, outcome)
        return
    # If another request created it first, its leaders may still be unknown here.
    await cache.until(lambda: (coordinator.log.partition_count and cache.has_leaders(topic)) or None, NEW_TOPIC_WAIT_S)
