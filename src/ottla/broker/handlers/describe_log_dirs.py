"""DescribeLogDirs: what lies in this broker's log directories, how much it is, and how much room is left."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.api import RequestContext
from ottla.broker.handlers import handles
from ottla.log.directories import LogDirectories, LogDirectory
from ottla.log.names import TopicPartition
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
    """Every directory, with those of the partitions asked for that it has."""
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
    for partition, log in directory.logs.items():
        if wanted is None or partition in wanted:
            # The leader's copy is never behind; a follower is where its high watermark is beyond its end.
            answer = DescribeLogDirsPartitionResponse(
                partition_index=partition.partition,
                partition_size=log.size,
                offset_lag=max(log.high_watermark - log.next_offset, 0),
            )
            topics.setdefault(partition.topic, []).append(answer)
    return DescribedLogDir(
        log_dir=path,
        topics=[DescribeLogDirsTopicResponse(name=name, partitions=answers) for name, answers in topics.items()],
        total_bytes=room.total,
        usable_bytes=room.free,
    )
