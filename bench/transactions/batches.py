"""Big batches: plain, idempotent, or in transactions of many. The driver does the same for each of the three."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Final

from bench.broker.control import check, connect, receive_frame
from bench.broker.frames import CLIENT_ID, records_in_big_batch
from bench.broker.raw import IN_FLIGHT, MB, in_threads, measured
from bench.transactions.producer import (
    ADD_VERSION,
    END_VERSIONS,
    PRODUCE_VERSIONS,
    BatchFrame,
    Identity,
    await_end_offset,
    initialise,
)

from ottla.base.error_codes import ErrorCode
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.schema import Request

PLAIN: Final = "plain"
IDEMPOTENT: Final = "idempotent"
TRANSACTIONAL: Final = "transactional"
BATCHES_A_TRANSACTION: Final = 100
_PROTOCOL: Final = 1


def big_batches(
    address: str, pid: int, topic: str, mode: str, value_bytes: int, connections: int, total_mb: int
) -> dict[str, float]:
    """Requests of one big batch each; each connection writes to its own partition, which has to be empty."""
    count = records_in_big_batch(value_bytes)
    with ExitStack() as stack:
        writers = [
            _Writer(stack.enter_context(connect(address)), address, topic, index, mode, value_bytes)
            for index in range(connections)
        ]
        batch_bytes = writers[0].frames[0].batch_bytes
        requests = max(IN_FLIGHT, total_mb * MB // (batch_bytes * connections))
        with measured(pid) as spent:
            in_threads(lambda index: writers[index].write(requests), connections)
    for partition, writer in enumerate(writers):
        await_end_offset(address, topic, partition, requests * count + writer.transactions)
    return spent.of_bytes(requests * connections * batch_bytes)


class _Writer:
    def __init__(
        self, connection: socket.socket, address: str, topic: str, partition: int, mode: str, value_bytes: int
    ) -> None:
        self._connection = connection
        self._mode = mode
        self._place = topic, partition
        self._id = f"{topic}-{partition}" if mode == TRANSACTIONAL else None
        self._identity: Identity | None = None if mode == PLAIN else initialise(address, self._id)
        count = records_in_big_batch(value_bytes)
        # One for each request in flight: what is being sent must not change.
        self.frames = [
            BatchFrame(topic, partition, value_bytes, count, self._id, PRODUCE_VERSIONS[_PROTOCOL])
            for _ in range(IN_FLIGHT + 1)
        ]
        self.transactions = 0

    def write(self, requests: int) -> None:
        step = BATCHES_A_TRANSACTION if self._mode == TRANSACTIONAL else requests
        for start in range(0, requests, step):
            self._begin()
            self._send(min(step, requests - start))
            self._commit()

    def _send(self, requests: int) -> None:
        answered = 0
        for number in range(requests):
            frame = self.frames[number % len(self.frames)]
            frame.sign(self._identity)
            if self._identity is not None:
                self._identity.sequence += frame.records
            self._connection.sendall(frame.bytes)
            if number - answered >= IN_FLIGHT - 1:
                self._check()
                answered += 1
        while answered < requests:
            self._check()
            answered += 1

    def _check(self) -> None:
        response = self._answer(ProduceRequest, PRODUCE_VERSIONS[_PROTOCOL])
        if not isinstance(response, ProduceResponse):
            raise TypeError(f"a Produce was answered by a {type(response).__name__}")
        check(response.responses[0].partition_responses[0].error_code, "a Produce request")

    def _begin(self) -> None:
        if self._id is None or self._identity is None:
            return
        topic, partition = self._place
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        while True:
            self._ask(request, ADD_VERSION)
            response = self._answer(AddPartitionsToTxnRequest, ADD_VERSION)
            if not isinstance(response, AddPartitionsToTxnResponse):
                raise TypeError(f"AddPartitionsToTxn was answered by a {type(response).__name__}")
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                check(code, "AddPartitionsToTxn")
                return

    def _commit(self) -> None:
        if self._id is None or self._identity is None:
            return
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=True,
        )
        self._ask(request, END_VERSIONS[_PROTOCOL])
        response = self._answer(EndTxnRequest, END_VERSIONS[_PROTOCOL])
        if not isinstance(response, EndTxnResponse):
            raise TypeError(f"EndTxn was answered by a {type(response).__name__}")
        check(response.error_code, "EndTxn")
        self.transactions += 1

    def _ask(self, request: Request, version: int) -> None:
        self._connection.sendall(b"".join(request_frame(request, version, 1, CLIENT_ID)))

    def _answer(self, request: type[Request], version: int) -> object:
        return read_response(api_of(request.api_key), version, receive_frame(self._connection))[1]
