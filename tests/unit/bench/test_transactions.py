"""The frames of the bench of transactions are what a broker takes, also after they were patched."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
from bench.broker.session import Effort
from bench.transactions.lines import Amounts, lines_of
from bench.transactions.producer import BatchFrame, Identity, RawProducer
from bench.transactions.session import is_steady
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
    assert len(keys) == len(set(keys)) == 12


def test_big_batches_take_short_turns_and_are_measured_once_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def run(_: str, *, mode: str, total_mb: int, **__: object) -> dict[str, float]:
        asked.append((mode, total_mb))
        return {"mb_per_s": float(len(asked))}

    monkeypatch.setattr("bench.transactions.driver.run", run)
    session: Any = Mock(topic=lambda *_: nullcontext("t"))
    line = next(line for line in lines_of(Amounts()) if line.key == "big-idempotent")
    effort = Effort(raw_mb=1500)
    with line.contenders(session, effort) as (ours, beside):
        figures = [each.turn(effort) for each in (beside, ours)]
    assert [mode for mode, _ in asked] == ["plain", "idempotent", "idempotent", "plain"] * 3 + ["plain", "idempotent"]
    assert {size for _, size in asked} == {300}
    assert figures == [{"mb_per_s": 13.0}, {"mb_per_s": 14.0}]  # the fastest of turns 1 4 5 8 9 12 13 and of the others


def test_a_broker_is_warm_when_transactions_do_not_get_cheaper() -> None:
    assert not is_steady([900, 800, 700, 600])
    assert not is_steady([900, 800, 850, 600])
    assert not is_steady([900, 800, 600, 850])  # there may be more to come
    assert is_steady([900, 800, 790, 810])
