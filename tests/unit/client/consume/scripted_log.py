"""A broker's partitions, as a script for `ScriptedBroker`: sessions, long polls, offsets, epochs, and bad days."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.client.config import ConsumerConfig
from ottla.records import BatchOptions, Record, encode_batch
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import TOPIC_ID, Answer, HangUp, ScriptedBroker

TOPIC: Final = "events"
SESSION_ID: Final = 77


def batch(first: int, count: int, **options: Any) -> bytearray:
    """Records whose values are their offsets, and whose timestamps are 1000 later."""
    records = [Record(0, 1000 + offset, None, b"%d" % offset) for offset in range(first, first + count)]
    return encode_batch(records, BatchOptions(base_offset=first, **options))


def message(offset: int, *, magic: int, attributes: int = 0) -> bytes:
    """A message of an older magic, with what a record of `batch` has."""
    body = struct.pack(">bB", magic, attributes) + (struct.pack(">q", 1000 + offset) if magic else b"")
    value = b"%d" % offset
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def config_for(broker: ScriptedBroker, **settings: object) -> dict[str, object]:
    """Settings of a consumer that has no time to lose."""
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
    usual = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", "default_api_timeout_ms": 5000}
    return {**quick, **usual, **settings}


def parsed(broker: ScriptedBroker, **settings: object) -> ConsumerConfig:
    return ConsumerConfig.parse(None, config_for(broker, **settings))


@dataclass
class Partition:
    """Batches that are fetched from the one on that holds the offset asked for."""

    batches: list[bytearray] = field(default_factory=list)
    first: int = 0
    end: int = 0
    chunk: int | None = None
    """How many bytes an answer has at most: batches are cut off there."""
    is_limited: bool = False
    """Whether answers are cut off at the limits of the request, as by brokers before 0.10.1 (KIP-74)."""
    errors: list[ErrorCode] = field(default_factory=list)
    """What is answered first, one after the other."""
    aborted: list[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    epoch_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For an epoch that is asked about: the epoch and offset where it ended."""

    def found(self, offset: int) -> bytes:
        return bytes(b"".join(one for one in self.batches if _last_offset(one) >= offset))[: self.chunk]


def _last_offset(data: bytearray) -> int:
    if data[16] < 2:
        return int.from_bytes(data[:8], "big")
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


class ScriptedLog:
    """The script. Times are what `batch` gives."""

    def __init__(self, *partitions: Partition, session_id: int = SESSION_ID) -> None:
        self.partitions = dict(enumerate(partitions))
        self.before: list[HangUp | ErrorCode] = []
        """What fetches get first, whatever they ask for."""
        self.fetches: list[FetchRequest] = []
        self.fetched_at_once: list[set[int]] = []
        """Which partitions each fetch was about, the session's included."""
        self._session_id = session_id
        self._next_epoch = 0
        self._session: dict[int, FetchPartition] = {}
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Lets fetches that wait look again."""
        self._changed.set()

    def broker(self, **options: Any) -> ScriptedBroker:
        self._broker = ScriptedBroker(self, {TOPIC: len(self.partitions)}, **options)
        return self._broker

    def __call__(self, request: Request) -> Answer | Awaitable[Answer] | None:
        match request:
            case FetchRequest():
                return self._fetch(request)
            case ListOffsetsRequest():
                return self._offsets(request)
            case OffsetForLeaderEpochRequest():
                return self._epochs(request)
        return None

    async def _fetch(self, request: FetchRequest) -> Answer:
        self.fetches.append(request)
        special = self.before.pop(0) if self.before else ErrorCode.NONE
        if isinstance(special, HangUp):
            return special
        if special:
            return FetchResponse(error_code=special)
        asked = {one.partition: one for topic in request.topics for one in topic.partitions}
        if request.session_epoch > 0:
            if request.session_epoch != self._next_epoch or request.session_id != self._session_id:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            self._session.update(asked)
            for forgotten in request.forgotten_topics_data:
                for index in forgotten.partitions:
                    del self._session[index]
        else:
            self._session = asked
        self._next_epoch = request.session_epoch + 1
        self.fetched_at_once.append(set(self._session))
        deadline_s = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        is_full = request.session_epoch <= 0
        while True:
            answers = [self._one(one, request) for one in self._session.values()]
            has_news = any(one.error_code or one.records for one in answers)
            left_s = deadline_s - asyncio.get_running_loop().time()
            if has_news or left_s <= 0:
                break
            self._changed.clear()
            waiting = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([waiting], timeout=left_s)
            waiting.cancel()
        told = [one for one in answers if is_full or one.error_code or one.records or one.preferred_read_replica >= 0]
        topics = [FetchTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=told)] if told else []
        return FetchResponse(session_id=self._session_id, responses=topics)

    def _one(self, asked: FetchPartition, request: FetchRequest) -> FetchPartitionResponse:
        partition = self.partitions[asked.partition]
        code = partition.errors.pop(0) if partition.errors else ErrorCode.NONE
        if not code and asked.current_leader_epoch not in (-1, self._broker.leader_epoch):
            code = ErrorCode.FENCED_LEADER_EPOCH
        if not code and not partition.first <= asked.fetch_offset <= partition.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        limit_bytes = min(asked.partition_max_bytes, request.max_bytes) if partition.is_limited else None
        return FetchPartitionResponse(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=partition.end,
            last_stable_offset=partition.end,
            aborted_transactions=partition.aborted if request.isolation_level else None,
            preferred_read_replica=partition.preferred_read_replica,
            records=b"" if code else partition.found(asked.fetch_offset)[:limit_bytes],
        )

    def _offsets(self, request: ListOffsetsRequest) -> Answer:
        answers = []
        for one in request.topics[0].partitions:
            partition = self.partitions[one.partition_index]
            offset = {-1: partition.end, -2: partition.first}.get(one.timestamp, max(one.timestamp - 1000, 0))
            if offset >= partition.end and one.timestamp >= 0:
                offset = -1
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=one.partition_index, offset=offset, timestamp=1000 + offset, leader_epoch=0
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])

    def _epochs(self, request: OffsetForLeaderEpochRequest) -> Answer:
        answers = []
        for one in request.topics[0].partitions:
            epoch, end = self.partitions[one.partition].epoch_ends.get(one.leader_epoch, (-1, -1))
            answers.append(
                OffsetForLeaderEpochPartitionResponse(partition=one.partition, leader_epoch=epoch, end_offset=end)
            )
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochTopicResponse(topic=TOPIC, partitions=answers)])


def by_partition(records: list[Any]) -> dict[int, list[int]]:
    """The offsets of records, by partition."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for record in records:
        offsets[record.partition].append(record.offset)
    return dict(offsets)
