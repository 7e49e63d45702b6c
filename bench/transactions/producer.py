"""A transactional producer made of frames that are patched: so little is done for a request that the broker is the
limit.

A transaction is one batch for one partition. With the first version of the protocol, it is AddPartitionsToTxn, Produce
and EndTxn, one after the other. With the second (KIP-890), Produce adds the partition, and EndTxn answers with the next
epoch. What a broker answers with CONCURRENT_TRANSACTIONS is asked again after a pause, as clients do.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Final, TypeVar

from bench.broker.control import Control, check
from bench.broker.frames import CLIENT_ID, batch_of
from crc32c import crc32c

from ottla.base.error_codes import ErrorCode
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CRC_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
)
from ottla.wire.framing import api_of, read_response, request_frame, response_frame
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from ottla.wire.schema import Request, Response

ADD_VERSION: Final = 3
PRODUCE_VERSIONS: Final = {1: 11, 2: 12}
"""By the version of the transaction protocol."""
END_VERSIONS: Final = {1: 4, 2: 5}
_INIT_VERSION: Final = 4
_FIND_VERSION: Final = 4
_TRANSACTION: Final = 1
_ANY_ID: Final = 0x0FF5E7_0FF5E7
_TRANSACTIONAL: Final = 0x10
_TIMEOUT_MS: Final = 60_000
_READY_S: Final = 60.0
_PAUSE_S: Final = 0.02
_NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
R = TypeVar("R", bound=Response)
_INT64, _INT32, _INT16, _UINT32 = (struct.Struct(f">{code}") for code in "qihI")


@dataclass(slots=True)
class Identity:
    producer_id: int
    epoch: int
    sequence: int = 0


def initialise(address: str, transactional_id: str | None) -> Identity:
    """A producer id; for a transactional id, when its coordinator has one."""
    give_up_s = time.monotonic() + _READY_S
    with Control(address) as control:
        while True:
            code = ErrorCode.NONE
            if transactional_id is not None:
                find = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[transactional_id])
                found = control.ask(find, _FIND_VERSION, FindCoordinatorResponse).coordinators[0]
                code = ErrorCode(found.error_code)
            if code is ErrorCode.NONE:
                request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
                answer = control.ask(request, _INIT_VERSION, InitProducerIdResponse)
                code = ErrorCode(answer.error_code)
                if code is ErrorCode.NONE:
                    return Identity(answer.producer_id, answer.producer_epoch)
            if code not in _NOT_YET or time.monotonic() > give_up_s:
                check(code, f"InitProducerId of {transactional_id}")
            time.sleep(_PAUSE_S)


def await_end_offset(address: str, topic: str, partition: int, expected: int) -> None:
    """What was acknowledged must be there; markers are written after their commit was acknowledged."""
    give_up_s = time.monotonic() + _READY_S
    with Control(address) as control:
        while (end := control.end_offset(topic, partition)) != expected:
            if end > expected or time.monotonic() > give_up_s:
                raise RuntimeError(f"{topic}-{partition} ends at {end} where it should at {expected}")
            time.sleep(_PAUSE_S)


class BatchFrame:
    """A Produce request with one batch, whose producer and sequence can be set."""

    def __init__(
        self, topic: str, partition: int, value_bytes: int, records: int, transactional_id: str | None, version: int
    ) -> None:
        batch = batch_of(value_bytes, records)
        if transactional_id is not None:
            batch[ATTRIBUTES_AT + 1] |= _TRANSACTIONAL
        parts = [ProducePartition(index=partition, records=batch)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[ProduceTopic(name=topic, partition_data=parts)],
        )
        self.bytes = bytearray(b"".join(request_frame(request, version, 1, CLIENT_ID)))
        self.records = records
        self.batch_bytes = len(batch)
        self._at = self.bytes.index(batch)
        self._covered = memoryview(self.bytes)[self._at + ATTRIBUTES_AT : self._at + len(batch)]

    @property
    def batch_at(self) -> int:
        return self._at

    def sign(self, identity: Identity | None) -> None:
        """None for a plain batch, which costs as much here."""
        if identity is not None:
            _INT64.pack_into(self.bytes, self._at + PRODUCER_ID_AT, identity.producer_id)
            _INT16.pack_into(self.bytes, self._at + PRODUCER_EPOCH_AT, identity.epoch)
            _INT32.pack_into(self.bytes, self._at + BASE_SEQUENCE_AT, identity.sequence)
        _UINT32.pack_into(self.bytes, self._at + CRC_AT, crc32c(self._covered))


class RawProducer:
    """One transaction after the other over one connection. `next_frame` is what to send; `take` looks at the answer."""

    def __init__(
        self,
        connection: socket.socket,
        identity: Identity,
        transactional_id: str,
        topic: str,
        partition: int,
        *,
        value_bytes: int,
        records: int,
        protocol: int,
    ) -> None:
        self.connection = connection
        self.identity = identity
        self.done = 0
        """Transactions that were committed."""
        self.refused = 0
        """Answers with CONCURRENT_TRANSACTIONS."""
        self._protocol = protocol
        self.batch = BatchFrame(topic, partition, value_bytes, records, transactional_id, PRODUCE_VERSIONS[protocol])
        self._steps = ("produce", "end") if protocol == 2 else ("add", "produce", "end")
        self._step = 0
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=_ANY_ID,
            producer_epoch=identity.epoch,
            committed=True,
        )
        self._add = _frame(add, ADD_VERSION)
        self._end = bytearray(_frame(end, END_VERSIONS[protocol]))
        self._id_at = self._end.index(_INT64.pack(_ANY_ID))
        self._good: dict[str, bytes] = {"produce": _good_beginning(topic, partition, PRODUCE_VERSIONS[protocol])}
        """How answers begin that are good: all of those that come again byte for byte."""
        self._name_epoch()

    def _name_epoch(self) -> None:
        """In the frame that differs from one epoch to the next."""
        _INT64.pack_into(self._end, self._id_at, self.identity.producer_id)
        _INT16.pack_into(self._end, self._id_at + 8, self.identity.epoch)

    def next_frame(self) -> bytes | bytearray:
        step = self._steps[self._step]
        if step == "add":
            return self._add
        if step == "end":
            return self._end
        self.batch.sign(self.identity)
        return self.batch.bytes

    def take(self, answer: bytes) -> bool:
        """Whether the answer was good; if not, the same has to be asked again."""
        step = self._steps[self._step]
        good = self._good.get(step)
        if (good is None or not answer.startswith(good)) and not self._look_into(step, answer):
            self.refused += 1
            return False
        if step == "produce":
            self.identity.sequence += self.batch.records
        self._step += 1
        if self._step == len(self._steps):
            self._step = 0
            self.done += 1
        return True

    def _look_into(self, step: str, answer: bytes) -> bool:
        if step == "add":
            response = _read(AddPartitionsToTxnRequest, ADD_VERSION, AddPartitionsToTxnResponse, answer)
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        elif step == "produce":
            version = PRODUCE_VERSIONS[self._protocol]
            code = (
                _read(ProduceRequest, version, ProduceResponse, answer).responses[0].partition_responses[0].error_code
            )
        else:
            ended = _read(EndTxnRequest, END_VERSIONS[self._protocol], EndTxnResponse, answer)
            code = ended.error_code
            if code == ErrorCode.NONE and self._protocol == 2:
                self.identity = Identity(ended.producer_id, ended.producer_epoch)
                self._name_epoch()
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return False
        check(code, f"{step} of a transaction")
        if step == "add" or (step == "end" and self._protocol == 1):
            self._good[step] = answer
        return True


def _good_beginning(topic: str, partition: int, version: int) -> bytes:
    """Of an answer to Produce, up to the offset."""
    one = ProducePartitionResponse(index=partition, base_offset=_ANY_ID)
    response = ProduceResponse(responses=[ProduceTopicResponse(name=topic, partition_responses=[one])])
    frame = b"".join(response_frame(response, version, 1))[4:]
    return frame[: frame.index(_INT64.pack(_ANY_ID))]


def _frame(request: Request, version: int) -> bytes:
    return b"".join(request_frame(request, version, 1, CLIENT_ID))


def _read(request: type[Request], version: int, kind: type[R], answer: bytes) -> R:
    response = read_response(api_of(request.api_key), version, answer)[1]
    if not isinstance(response, kind):
        raise TypeError(f"{request.__name__} was answered by a {type(response).__name__}")
    return response
