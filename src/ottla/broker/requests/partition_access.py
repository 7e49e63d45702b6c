"""Finds the partition that a request names, or raises the reason why this broker cannot serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.requests.api import BrokerError
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def hosted_partition(broker: Broker, topic: str, index: int) -> Partition:
    """The partition, even if another broker leads it or its log directory is offline."""
    partition = broker.replicas.get(topic, index)
    if partition is not None:
        return partition
    raise BrokerError(unhosted(broker, topic, index))


def unhosted(broker: Broker, topic: str, index: int) -> ErrorCode:
    """The error for a partition that this broker does not host: whether there is one elsewhere."""
    if broker.metadata.may_exist(topic, index):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def led_partition(broker: Broker, topic: str, index: int, current_leader_epoch: int = -1) -> Partition:
    """The partition, if this broker leads it and its log is online. `current_leader_epoch` is the client's."""
    partition = hosted_partition(broker, topic, index)
    code = partition.check_leader(current_leader_epoch)
    if code is not ErrorCode.NONE:
        raise BrokerError(code)
    return partition
