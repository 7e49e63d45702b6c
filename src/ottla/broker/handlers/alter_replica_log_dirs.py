"""AlterReplicaLogDirs: moves replicas between this broker's log directories (KIP-113).

The response says that a move has begun; DescribeLogDirs shows its progress.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.requests.partition_access import hosted_partition
from ottla.log.directories import LogDirectory
from ottla.log.errors import LogError
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsPartitionResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    broker: Broker, request: AlterReplicaLogDirsRequest, _: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Handles each replica independently. If a replica has two targets, the last one counts, as in Kafka."""
    places = {
        TopicPartition(topic.name, index): target.path
        for target in request.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirsPartitionResponse]] = {}
    for name, path in places.items():
        code = ErrorCode.NONE
        try:
            _move(broker, name, path)
        except (BrokerError, LogError) as error:
            _logger.warning("%s is not moved to %s: %s", name, path, error)
            code = error.code
        answer = AlterReplicaLogDirsPartitionResponse(partition_index=name.partition, error_code=code)
        topics.setdefault(name.topic, []).append(answer)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsTopicResponse(topic_name=topic, partitions=answers) for topic, answers in topics.items()
        ]
    )


def _move(broker: Broker, name: TopicPartition, path: str) -> None:
    target = _directory(broker, path)
    if target is None:
        raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, "the broker has no such log directory; log.dirs names them")
    try:
        partition = hosted_partition(broker, *name)
    except BrokerError as error:
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # Kafka uses the code that older clients know
            raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, "this broker has no replica of the partition") from None
        raise
    if target.failure is not None or partition.log is None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory or the target directory is offline")
    broker.replica_moves.start(partition, target)


def _directory(broker: Broker, path: str) -> LogDirectory | None:
    wanted = Path(path).absolute()
    return next((each for each in broker.directories.directories if each.path.absolute() == wanted), None)
