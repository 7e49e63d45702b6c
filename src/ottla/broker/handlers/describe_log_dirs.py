"""DescribeLogDirs: the replicas in this broker's log directories, their sizes, and the free space."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.broker.upkeep.replica_moves import moving_to
from ottla.log.directories import LogDirectories, LogDirectory
from ottla.wire.messages.describe_log_dirs import (
    DescribedLogDir,
    DescribeLogDirsPartitionResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DescribeLogDirsRequest)
def describe_log_dirs(broker: Broker, request: DescribeLogDirsRequest, _: RequestContext) -> DescribeLogDirsResponse:
    """All directories, each with its requested partitions. Only replicas that are being moved have a lag: a replica's
    high watermark is never beyond its own end."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    directories = broker.directories
    return DescribeLogDirsResponse(
        results=[_describe(directories, directory, wanted) for directory in directories.directories]
    )


def _describe(
    directories: LogDirectories, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> DescribedLogDir:
    path = str(directory.path.absolute())
    offline = DescribedLogDir(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    if directory.failure is not None:
        return offline
    try:
        room = shutil.disk_usage(directory.path)
    except OSError as error:
        directories.take_offline(directory, str(error))
        return offline
    topics: dict[str, list[DescribeLogDirsPartitionResponse]] = {}
    for (topic, index), log in directory.logs.items():
        if wanted is None or (topic, index) in wanted:
            answer = DescribeLogDirsPartitionResponse(partition_index=index, partition_size=log.size)
            topics.setdefault(topic, []).append(answer)
    for (topic, index), move in moving_to(directories, directory).items():
        if wanted is None or (topic, index) in wanted:
            answer = DescribeLogDirsPartitionResponse(
                partition_index=index, partition_size=move.copy_log.size, offset_lag=move.lag, is_future_key=True
            )
            topics.setdefault(topic, []).append(answer)
    return DescribedLogDir(
        log_dir=path,
        topics=[DescribeLogDirsTopicResponse(name=name, partitions=answers) for name, answers in topics.items()],
        total_bytes=room.total,
        usable_bytes=room.free,
    )
