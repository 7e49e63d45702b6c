"""Reads records of partitions that are assigned by hand, each from a place onwards.

`poll` keeps one fetch on its way to every broker that leads some of the partitions: while the caller looks at the
records it was given, the next ones are already on their way. A response per broker is all that is ever held. Fetches
that fail for a reason that passes are made again with fresh metadata.

Belongs to one loop; one caller polls. Groups, committed offsets and transactions' isolation are still to come: records
of transactions that are open or were aborted are given like all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.client.cluster import Backoff, Cluster, Deadline, may_pass
from ottla.client.errors import ClientError, OffsetOutOfRangeError, RefusedError, UnknownTopicError
from ottla.client.offsets import EARLIEST, LATEST, Place, offsets_at
from ottla.net.client_connection import BrokerConnectionError, ClientConnection
from ottla.records import BatchView, Record, decode_batch, iter_entries
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

_LAST_VERSION_BY_NAME: Final = 12
_NO_SESSION: Final = -1


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How much is fetched, and how long a broker waits for it."""

    max_wait_s: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    verify_crc: bool = True


class Fetched(NamedTuple):
    """Records of one partition from a position on, in order; perhaps none, when only its end was learnt."""

    partition: TopicPartition
    position: int
    records: list[Record]
    next_offset: int
    high_watermark: int

    @property
    def is_at_end(self) -> bool:
        """Whether there was nothing more to read when the broker answered."""
        return self.next_offset >= self.high_watermark


class Consumer:
    """Use it as an async context, or `close` it: it keeps fetches running."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions | None = None) -> None:
        self.options = options or ConsumerOptions()
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._fetches: dict[int, asyncio.Task[list[Fetched]]] = {}
        self._patience: Deadline | None = None
        self._backoff = Backoff(cluster.options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the fetches. The cluster's connections are not ours to close."""
        fetches = list(self._fetches.values())
        self._fetches.clear()
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    # Where to read.

    async def assign(self, places: Mapping[TopicPartition, Place | int]) -> None:
        """Reads these partitions from now on, and no others: each from an offset or a place."""
        await self.close()
        positions = {partition: place for partition, place in places.items() if isinstance(place, int)}
        asked = {partition: place for partition, place in places.items() if isinstance(place, Place)}
        self._positions = {**positions, **await offsets_at(self._cluster, asked)}

    def forget(self, partition: TopicPartition) -> None:
        """Reads this partition no more."""
        self._positions.pop(partition, None)

    # Reading.

    async def __aiter__(self) -> AsyncIterator[Fetched]:
        while self._positions:
            for fetched in await self.poll():
                yield fetched

    async def poll(self) -> list[Fetched]:
        """What the next brokers that answer have to tell; waits for at least one of them."""
        while self._positions:
            await self._find_leaders()
            self._launch()
            done, _ = await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
            results: list[Fetched] = []
            failure: Exception | None = None
            for leader_id, fetch in list(self._fetches.items()):
                if fetch in done:
                    del self._fetches[leader_id]
                    try:
                        results += fetch.result()
                    except (BrokerConnectionError, RefusedError) as error:
                        failure = error
            results = [fetched for fetched in results if self._advance(fetched)]
            if failure is not None:
                await self._wait_after(failure)
            elif results:
                self._patience = None
            if results:
                self._launch()
                return results
        return []

    def _advance(self, fetched: Fetched) -> bool:
        """False for an answer that comes too late: the partition was given up, or its new leader answered before."""
        if self._positions.get(fetched.partition) != fetched.position:
            return False
        self._positions[fetched.partition] = fetched.next_offset
        return True

    async def _wait_after(self, failure: Exception) -> None:
        if not may_pass(failure):
            raise failure
        if self._patience is None:
            self._patience = Deadline(self._cluster.options.api_timeout_s)
            self._backoff = Backoff(self._cluster.options)
        elif self._patience.is_over:
            raise failure
        for partition in self._positions:
            self._cluster.distrust(partition.topic)
        await asyncio.sleep(self._backoff.next_s())

    async def _find_leaders(self) -> None:
        for partition in list(self._positions):
            while self._cluster.known_leader(partition) is None:
                code = ErrorCode.LEADER_NOT_AVAILABLE
                try:
                    await self._cluster.topic(partition.topic)
                except UnknownTopicError:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a broker that has just started may not know it yet
                except (BrokerConnectionError, RefusedError) as error:
                    await self._wait_after(error)
                    continue
                if self._cluster.known_leader(partition) is None:
                    await self._wait_after(RefusedError(code, f"partition {partition}"))

    def _launch(self) -> None:
        """A fetch for every broker that has none on its way."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, position in self._positions.items():
            leader_id = self._cluster.known_leader(partition)
            if leader_id is not None and leader_id not in self._fetches:
                by_leader.setdefault(leader_id, {})[partition] = position
        for leader_id, positions in by_leader.items():
            fetch = self._fetch(leader_id, positions)
            self._fetches[leader_id] = asyncio.get_running_loop().create_task(fetch, name="ottla-fetch")

    async def _fetch(self, leader_id: int, positions: Mapping[TopicPartition, int]) -> list[Fetched]:
        connection = await self._cluster.connection(leader_id)
        ids = {partition.topic: (await self._cluster.topic(partition.topic)).topic_id for partition in positions}
        answer = await self._ask(connection, positions, ids)
        if answer.error_code:
            raise RefusedError(answer.error_code, f"a fetch from broker {leader_id}")
        names = {topic_id: name for name, topic_id in ids.items()}
        results = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for one in topic.partitions:
                partition = TopicPartition(name, one.partition_index)
                if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise await self._out_of_range(partition, positions[partition])
                if one.error_code:
                    raise RefusedError(one.error_code, f"partition {partition}")
                results.append(self._read(partition, positions[partition], one))
        return results

    async def _ask(
        self, connection: ClientConnection, positions: Mapping[TopicPartition, int], ids: Mapping[str, Uuid]
    ) -> FetchResponse:
        by_name = any(topic_id == ZERO_UUID for topic_id in ids.values())
        version = connection.version_for(FetchRequest, at_most=_LAST_VERSION_BY_NAME if by_name else None)
        topics: dict[str, FetchTopic] = {}
        for partition, position in positions.items():
            topic = topics.setdefault(partition.topic, FetchTopic(topic=partition.topic, topic_id=ids[partition.topic]))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=position,
                    partition_max_bytes=self.options.partition_max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=int(self.options.max_wait_s * 1000),
            min_bytes=self.options.min_bytes,
            max_bytes=self.options.max_bytes,
            session_epoch=_NO_SESSION,
            topics=list(topics.values()),
        )
        timeout_s = self.options.max_wait_s + self._cluster.options.connection.request_timeout_s
        return await connection.send(request, FetchResponse, version=version, timeout_s=timeout_s)

    def _read(self, partition: TopicPartition, position: int, answer: FetchPartitionResponse) -> Fetched:
        """A batch comes whole even if only its end was asked for, and the last one may be cut off."""
        next_offset = position
        records: list[Record] = []
        for entry in iter_entries(answer.records or b"", partial_tail=True):
            if isinstance(entry, BatchView):
                if not entry.is_control:
                    records += decode_batch(entry, verify_crc=self.options.verify_crc)
                next_offset = max(next_offset, entry.next_offset)
            else:
                records += entry.records(verify_crc=self.options.verify_crc)
                next_offset = max(next_offset, entry.last_offset + 1)
        if records and records[0].offset < position:
            records = [record for record in records if record.offset >= position]
        return Fetched(partition, position, records, next_offset, answer.high_watermark)

    async def _out_of_range(self, partition: TopicPartition, position: int) -> ClientError:
        first = (await offsets_at(self._cluster, {partition: EARLIEST}))[partition]
        end = (await offsets_at(self._cluster, {partition: LATEST}))[partition]
        has = f"has offsets {first} to {end - 1}" if end > first else f"is empty, the next offset is {end}"
        return OffsetOutOfRangeError(f"partition {partition} {has}; {position} is not there")
