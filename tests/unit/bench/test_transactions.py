"""The frames of the bench of transactions are what a broker takes, also after they were patched."""

from __future__ import annotations

import socket

import pytest
from bench.transactions.lines import Amounts, lines_of
from bench.transactions.producer import BatchFrame, Identity, RawProducer
from crc32c import crc32c

from ottla.base.error_codes import ErrorCode
from ottla.records.batch import iter_batches
from ottla.records.layout import ATTRIBUTES_AT
from ottla.wire.framing import read_request, response_frame
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)


def test_a_batch_is_valid_after_it_was_signed() -> None:
    frame = BatchFrame("t", 3, 100, 7, "id", 11)
    frame.sign(Identity(12345, 6, 700))
    request = read_request(bytes(frame.bytes[4:])).request
    assert isinstance(request, ProduceRequest)
    (part,) = request.topic_data[0].partition_data
    (batch,) = iter_batches(bytes(part.records or b""))
    assert (part.index, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 12345, 6, 700)
    assert batch.is_transactional
    assert batch.crc == crc32c(batch.data[ATTRIBUTES_AT:])


def answer(response: object, version: int) -> bytes:
    return b"".join(response_frame(response, version, 1))[4:]  # type: ignore[arg-type]


def produced(offset: int, code: int = 0) -> bytes:
    one = ProducePartitionResponse(index=0, error_code=code, base_offset=offset)
    return answer(ProduceResponse(responses=[ProduceTopicResponse(name="t", partition_responses=[one])]), 12)


@pytest.fixture
def producer() -> RawProducer:
    with socket.socket() as unused:
        return RawProducer(unused, Identity(5, 0), "id", "t", 0, value_bytes=10, records=4, protocol=2)


def test_every_commit_raises_the_epoch_with_the_newer_protocol(producer: RawProducer) -> None:
    assert producer.take(produced(0))
    assert producer.identity.sequence == 4
    assert producer.take(answer(EndTxnResponse(producer_id=5, producer_epoch=1), 5))
    assert (producer.done, producer.identity) == (1, Identity(5, 1, 0))
    assert producer.take(produced(5))
    request = read_request(bytes(producer.next_frame()[4:])).request
    assert isinstance(request, EndTxnRequest)
    assert (request.producer_id, request.producer_epoch, request.committed) == (5, 1, True)


def test_what_is_refused_for_a_moment_is_asked_again(producer: RawProducer) -> None:
    assert not producer.take(produced(-1, ErrorCode.CONCURRENT_TRANSACTIONS))
    assert (producer.refused, producer.identity.sequence) == (1, 0)
    assert producer.take(produced(0))
    with pytest.raises(RuntimeError, match="INVALID_PRODUCER_EPOCH"):
        producer.take(answer(EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH), 5))


def test_lines_have_names_of_their_own() -> None:
    keys = [line.key for line in lines_of(Amounts())]
    assert len(keys) == len(set(keys)) == 11
