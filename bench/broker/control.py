"""A blocking connection for what is asked beside the load: topics made and deleted, offsets, the first record."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, TypeVar

from bench.broker.frames import CLIENT_ID, PRODUCE_VERSION

from ottla.base.error_codes import ErrorCode
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
_LATEST: Final = -1
_ANSWER_TIMEOUT_S: Final = 600
_RETRY_PAUSE_S: Final = 0.005


class Control:
    """One connection, one request at a time. An answer that carries an error raises, and so does one that does not
    come in time."""

    def __init__(self, address: str, *, answer_timeout_s: int = _ANSWER_TIMEOUT_S) -> None:
        self._address = address
        self._answer_timeout_s = answer_timeout_s
        self._socket = connect(address, answer_timeout_s=answer_timeout_s)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Request, version: int, answer: type[R]) -> R:
        frame = b"".join(request_frame(request, version, 1, CLIENT_ID))
        return self.read(request, version, answer, self.exchange(frame, type(request).__name__))

    def exchange(self, frame: bytes, what: str = "a request") -> bytearray:
        """The answer to a frame, as it came."""
        self._socket.sendall(frame)
        try:
            return receive_frame(self._socket)
        except BlockingIOError:  # what a socket says when the kernel's time limit is over
            raise TimeoutError(f"{self._address} has not answered {what} within {self._answer_timeout_s} s") from None

    def read(self, request: Request, version: int, answer: type[R], frame: bytearray) -> R:
        _, response = read_response(api_of(request.api_key), version, frame)
        if not isinstance(response, answer):
            raise TypeError(f"{type(request).__name__} was answered by a {type(response).__name__}")
        return response

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] = MappingProxyType({})) -> None:
        """All its partitions have leaders that serve them when this returns."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_ANSWER_TIMEOUT_S * 1000)
        response = self.ask(request, 5, CreateTopicsResponse)
        check(response.topics[0].error_code, f"creation of topic {name}")
        self.wait_for_leaders(name, partitions)
        self.wait_for_logs(name, partitions)

    def wait_for_leaders(self, topic: str, partitions: int = 1, *, deadline_s: float = 120.0) -> None:
        """Asking also makes the topic where it is not there."""
        give_up_s = time.monotonic() + deadline_s
        while True:
            response = self.ask(MetadataRequest(topics=[MetadataTopic(name=topic)]), 9, MetadataResponse)
            found = response.topics[0]
            led = sum(1 for partition in found.partitions if partition.leader_id >= 0 and not partition.error_code)
            if found.error_code == ErrorCode.NONE and led == partitions:
                return
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"topic {topic}: {led} of {partitions} partitions have leaders after {deadline_s} s")
            time.sleep(_RETRY_PAUSE_S)

    def wait_for_logs(self, topic: str, partitions: int, *, deadline_s: float = 120.0) -> None:
        """Kafka names a leader before it has made the log."""
        give_up_s = time.monotonic() + deadline_s
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        while any(each.error_code for each in self.ask(request, 6, ListOffsetsResponse).topics[0].partitions):
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"topic {topic}: not all of {partitions} partitions are served after {deadline_s} s")
            time.sleep(_RETRY_PAUSE_S)

    def delete_topic(self, name: str) -> None:
        response = self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5, DeleteTopicsResponse)
        check(response.responses[0].error_code, f"deletion of topic {name}")

    def brokers(self) -> int:
        """How many there are, which any request to an idle connection could ask."""
        return len(self.ask(MetadataRequest(topics=[]), 9, MetadataResponse).brokers)

    def end_offset(self, topic: str, partition: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        found = self.ask(request, 6, ListOffsetsResponse).topics[0].partitions[0]
        check(found.error_code, f"end offset of {topic}-{partition}")
        return found.offset

    def produce(self, topic: str, partition: int, batch: bytes | bytearray) -> ErrorCode:
        data = ProduceTopic(name=topic, partition_data=[ProducePartition(index=partition, records=batch)])
        response = self.ask(
            ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION, ProduceResponse
        )
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


def connect(address: str, *, answer_timeout_s: int = _ANSWER_TIMEOUT_S) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's time limit: Python's own would cost a system call more for each send and receive.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", answer_timeout_s, 0))
    return connection


def receive_frame(connection: socket.socket) -> bytearray:
    """One response, without its size."""
    body = bytearray(int.from_bytes(_receive_into(connection, bytearray(4)), "big"))
    return _receive_into(connection, body)


def _receive_into(connection: socket.socket, buffer: bytearray) -> bytearray:
    view, filled = memoryview(buffer), 0
    while filled < len(buffer):
        got = connection.recv_into(view[filled:])
        if not got:
            raise ConnectionError("the broker has closed the connection")
        filled += got
    return buffer


def first_acknowledged(
    address: str, topic: str, batch: bytes | bytearray, alive: Callable[[], None], *, deadline_s: float = 120.0
) -> None:
    """Tries, as a client does that was started together with its broker, until a record is acknowledged; `alive` raises
    when that cannot be any more."""
    give_up_s = time.monotonic() + deadline_s
    while True:
        alive()
        try:
            with Control(address) as control:
                control.wait_for_leaders(topic, deadline_s=deadline_s)
                if control.produce(topic, 0, batch) == ErrorCode.NONE:
                    return
        except ConnectionError:
            pass
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"{address}: no record was acknowledged within {deadline_s} s")
        time.sleep(_RETRY_PAUSE_S)


def check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise RuntimeError(f"{what} was answered by {ErrorCode(code).name}")


def check_end_offset(address: str, topic: str, partition: int, expected: int) -> None:
    """What was acknowledged must be there."""
    with Control(address) as control:
        end = control.end_offset(topic, partition)
    if end != expected:
        raise RuntimeError(f"{topic}-{partition} ends at {end} where {expected} records were acknowledged")
