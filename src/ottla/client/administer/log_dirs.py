"""Log directories of brokers: describe them, and move replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.administer.outcomes import Area, by_topic, known, refusal
from ottla.client.errors import RefusedError
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsTarget,
    AlterReplicaLogDirsTopic,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribedLogDir,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsTopic,
)


class Replica(NamedTuple):
    """A replica: a partition on a broker."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.partition} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaInLogDir:
    """The size in bytes, the lag in records, and whether it is a future replica that is still being copied."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory; with an error if it is offline. The volume size is None if the broker is too old to report
    it."""

    path: str
    error: RefusedError | None
    replicas: Mapping[TopicPartition, ReplicaInLogDir]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool

    @classmethod
    def of(cls, directory: DescribedLogDir, broker_id: int) -> LogDirDescription:
        return cls(
            directory.log_dir,
            refusal(directory.error_code, f"log directory {directory.log_dir} of broker {broker_id}"),
            {
                TopicPartition(topic.name, one.partition_index): ReplicaInLogDir(
                    one.partition_size, one.offset_lag, one.is_future_key
                )
                for topic in directory.topics
                for one in topic.partitions
            },
            known(directory.total_bytes),
            known(directory.usable_bytes),
            directory.is_cordoned,
        )


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """The log directory of a replica; and that of its future replica, if it is being moved, with its lag."""

    path: str | None = None
    size: int | None = None
    offset_lag: int | None = None
    future_path: str | None = None
    future_offset_lag: int | None = None


class LogDirsArea(Area):
    """Operations on log directories."""

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The log directories of these brokers, or of all, by path; with all replicas in them, or only those of these
        partitions."""
        topics = None
        if partitions is not None:
            topics = [
                DescribeLogDirsTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
            ]
        if broker_ids is None:
            await self._cluster.retry(self._cluster.refresh)
            broker_ids = self._cluster.brokers

        async def attempt(some: list[int]) -> dict[int, dict[str, LogDirDescription] | RefusedError]:
            found: dict[int, dict[str, LogDirDescription] | RefusedError] = {}
            for broker_id in some:
                answer = await self._ask(broker_id, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
                found[broker_id] = refusal(answer.error_code, f"the log directories of broker {broker_id}") or {
                    one.log_dir: LogDirDescription.of(one, broker_id) for one in answer.results
                }
            return found

        return await self._settle(broker_ids, attempt)

    async def describe_replica_log_dirs(self, replicas: Iterable[Replica]) -> dict[Replica, ReplicaPlace]:
        """The log directories of these replicas; None if the broker does not have the replica."""
        wanted = list(dict.fromkeys(replicas))
        by_broker: dict[int, list[TopicPartition]] = {}
        for replica in wanted:
            by_broker.setdefault(replica.broker_id, []).append(replica.partition)
        places = dict.fromkeys(wanted, ReplicaPlace())
        for broker_id, partitions in by_broker.items():
            described = await self.describe_log_dirs([broker_id], partitions=partitions)
            for path, directory in described[broker_id].items():
                for partition, found in directory.replicas.items():
                    replica = Replica(partition, broker_id)
                    if found.is_future:
                        change = replace(places[replica], future_path=path, future_offset_lag=found.offset_lag)
                    else:
                        change = replace(places[replica], path=path, size=found.size, offset_lag=found.offset_lag)
                    places[replica] = change
        return places

    async def alter_replica_log_dirs(self, paths: Mapping[Replica, str]) -> None:
        """Starts moving replicas to other log directories of their brokers. `describe_replica_log_dirs` shows the
        progress."""

        async def attempt(some: list[Replica]) -> dict[Replica, RefusedError | None]:
            found: dict[Replica, RefusedError | None] = {}
            for broker_id in dict.fromkeys(replica.broker_id for replica in some):
                request = _moves({one.partition: paths[one] for one in some if one.broker_id == broker_id})
                answer = await self._ask(broker_id, request, AlterReplicaLogDirsResponse)
                for topic in answer.results:
                    for one in topic.partitions:
                        replica = Replica(TopicPartition(topic.topic_name, one.partition_index), broker_id)
                        subject = f"{replica} to {paths[replica]}" if replica in paths else str(replica)
                        found[replica] = refusal(one.error_code, subject)
            return found

        await self._settle(paths, attempt)


def _moves(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in paths.items():
        by_path.setdefault(path, []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsTarget(
                path=path,
                topics=[
                    AlterReplicaLogDirsTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )
