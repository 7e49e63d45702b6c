"""A log for a scripted broker that takes batches as Kafka does: each once, and in the order of its sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.client.config import ProducerConfig
from ottla.records import BatchHeader, Record, decode_batch, read_header, sequence_after
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import TOPIC_ID, Answer, HangUp, ScriptedBroker, Silence

_BATCHES_REMEMBERED: Final = 5


class AppendThenHangUp:
    """The batch is appended, and the connection ends before the answer leaves."""


class AppendSilently:
    """The batch is appended, and never answered."""


Fault = ErrorCode | HangUp | Silence | AppendThenHangUp | AppendSilently


@dataclass
class Partition:
    """What a broker keeps of one."""

    records: list[Record] = field(default_factory=list)
    epoch: int = -1
    producer_id: int = -1
    last: list[tuple[int, int, int]] = field(default_factory=list)
    """Sequence, count and offset of the last batches."""
    remembered: int = _BATCHES_REMEMBERED

    def append(self, header: BatchHeader, records: list[Record]) -> tuple[ErrorCode, int]:
        """The error, and the offset."""
        if header.producer_id >= 0:
            if header.producer_id != self.producer_id:
                self.producer_id, self.epoch, self.last = header.producer_id, -1, []
            if header.producer_epoch < self.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            for sequence, count, offset in self.last if header.producer_epoch == self.epoch else ():
                if (sequence, count) == (header.base_sequence, len(records)):
                    return ErrorCode.NONE, offset
            expected = sequence_after(*self.last[-1][:2]) if header.producer_epoch == self.epoch else 0
            is_known = self.epoch >= 0  # of a producer that it does not know, Kafka takes any sequence
            if is_known and header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if header.producer_epoch != self.epoch:
                self.epoch, self.last = header.producer_epoch, []
            self.last.append((header.base_sequence, len(records), len(self.records)))
            del self.last[: -self.remembered]
        offset = len(self.records)
        self.records += records
        return ErrorCode.NONE, offset


class Log:
    """The script of a broker: faults first, as long as there are any, and then as it should be."""

    def __init__(self, *faults: Fault | None, topic: str = "events") -> None:
        self.faults = list(faults)
        self.topic = topic
        self.partitions: dict[int, Partition] = {}
        self.headers: list[BatchHeader] = []
        """Of every batch that came, in the order of their coming."""
        self.producer_ids = 0
        self.remembered = _BATCHES_REMEMBERED
        """Of how many batches of a producer a partition knows."""
        self.max_batch_records = 10**9
        self.refused_values: Mapping[bytes | None, ErrorCode] = {}
        """Batches with such a value are not taken."""

    def __call__(self, request: Request) -> Answer | None:
        if isinstance(request, InitProducerIdRequest):
            self.producer_ids += 1
            return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)
        if not isinstance(request, ProduceRequest):
            return None
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, HangUp | Silence):
            for topic in request.topic_data:
                self.headers += [read_header(one.records or b"") for one in topic.partition_data]
            return fault
        answers = [self._append(one, fault) for topic in request.topic_data for one in topic.partition_data]
        if isinstance(fault, AppendThenHangUp):
            return HangUp()
        if request.acks == 0 or isinstance(fault, AppendSilently):
            return Silence()
        return ProduceResponse(
            responses=[ProduceTopicResponse(name=self.topic, topic_id=TOPIC_ID, partition_responses=answers)]
        )

    def _append(self, data: ProducePartition, fault: Fault | None) -> ProducePartitionResponse:
        assert data.records is not None
        header, records = read_header(data.records), decode_batch(data.records)
        self.headers.append(header)
        if isinstance(fault, ErrorCode):
            return ProducePartitionResponse(index=data.index, error_code=fault, base_offset=-1)
        refused = [self.refused_values[one.value] for one in records if one.value in self.refused_values]
        if refused or len(records) > self.max_batch_records:
            code = refused[0] if refused else ErrorCode.MESSAGE_TOO_LARGE
            return ProducePartitionResponse(index=data.index, error_code=code, base_offset=-1)
        partition = self.partitions.setdefault(data.index, Partition(remembered=self.remembered))
        code, offset = partition.append(header, records)
        return ProducePartitionResponse(index=data.index, error_code=code, base_offset=offset)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(partition)]

    def records(self, partition: int = 0) -> list[Record]:
        return self.partitions[partition].records if partition in self.partitions else []


def settings(broker: ScriptedBroker, **changes: object) -> dict[str, object]:
    """For a producer that is quick to try again."""
    usual: dict[str, object] = {
        "bootstrap_servers": broker.bootstrap,
        "linger_ms": 0,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
    }
    return usual | changes


def config(**changes: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "localhost:9092"}, changes)
