"""A broker that says what a test tells it to, over a real socket: for what a real one does only on a bad day."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.net.client_connection import Address
from ottla.wire.framing import SIZE_BYTES, ReceivedRequest, peek_route, read_request, response_frame
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResponse,
)
from ottla.wire.registry import API_VERSIONS, Api, apis
from ottla.wire.schema import Request, Response

TOPIC_ID: Final = Uuid(bytes(range(16)))
BROKER_ID: Final = 7

KAFKA_2_1: Final = {
    0: 7,
    1: 10,
    2: 4,
    3: 7,
    8: 6,
    9: 5,
    10: 2,
    11: 3,
    12: 2,
    13: 2,
    14: 2,
    15: 2,
    16: 2,
    18: 2,
    19: 3,
    20: 3,
    21: 1,
    22: 1,
    23: 2,
    32: 2,
    33: 1,
    34: 1,
    35: 1,
    37: 1,
    42: 1,
}
"""What a broker of that release serves: each API's highest version by its key, as far as clients need them."""


class Silence:
    """No answer, ever."""


class HangUp:
    """The connection ends, without an answer."""


Answer = Response | Silence | HangUp
Script = Callable[[Request], Answer | Awaitable[Answer] | None]


@dataclass
class ScriptedBroker:
    """Listens from `async with` on. What the script gives None for is answered as a small cluster of one would."""

    script: Script = lambda _: None
    topics: dict[str, int] = field(default_factory=lambda: {"events": 1})
    """With their numbers of partitions."""
    api_versions_max: int = ApiVersionsRequest.versions.high
    unserved: frozenset[int] = frozenset()
    newest: Mapping[int, int] | None = None
    """The highest version of each API by its key; others are not served. None serves all that there is."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized level of each."""
    leader_epoch: int = 0
    rack: str | None = None
    requests: list[Request] = field(default_factory=list)
    """All that came, but for ApiVersions."""
    request_versions: list[int] = field(default_factory=list)
    """The version of each of these requests."""
    versions: list[int] = field(default_factory=list)
    """The version of each ApiVersions request."""
    connections: int = 0
    port: int = 0
    """Where it listens; 0 for any that is free."""

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        host, port = self._server.sockets[0].getsockname()
        self.address = Address(host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    @property
    def open_connections(self) -> int:
        return len(self._writers)

    def of(self, request: type[Request]) -> list[Request]:
        """The requests of this kind that came."""
        return [one for one in self.requests if isinstance(one, request)]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine: one that has not begun when the test ends would leave its connection open."""
        if not self._server.is_serving():  # it was accepted just before
            writer.close()
            return
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering: set[asyncio.Task[None]] = set()
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
                frame = await reader.readexactly(size)
                # Answers need not come in order here, so that a test can try what a client makes of it.
                task = asyncio.ensure_future(self._answer(frame, writer))
                answering.add(task)
                task.add_done_callback(answering.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for task in answering:
                task.cancel()
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        route = peek_route(frame)
        if route.api_key == API_VERSIONS:
            self.versions.append(route.api_version)
            is_known = route.api_version <= self.api_versions_max
            self._write(writer, self._api_versions(is_known), route.api_version if is_known else 0, frame)
            return
        received = read_request(frame)
        self.requests.append(received.request)
        self.request_versions.append(route.api_version)
        answer = self.script(received.request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            answer = self._usual(received)
        if isinstance(answer, HangUp):
            writer.close()
        elif not isinstance(answer, Silence):
            self._write(writer, answer, route.api_version, frame)

    def _write(self, writer: asyncio.StreamWriter, answer: Response, version: int, frame: bytes) -> None:
        if not writer.is_closing():
            writer.writelines(response_frame(answer, version, peek_route(frame).correlation_id))

    def _api_versions(self, is_known: bool) -> ApiVersionsResponse:
        own = ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=self.api_versions_max)
        if not is_known:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        served = [
            ApiVersion(api_key=api.key, min_version=api.versions.low, max_version=self._newest(api))
            for api in apis().values()
            if api.key not in self.unserved and api.key != API_VERSIONS and self._newest(api) >= api.versions.low
        ]
        features = [FinalizedFeature(name=name, max_version_level=level) for name, level in self.features.items()]
        return ApiVersionsResponse(api_keys=[own, *served], finalized_features_epoch=1, finalized_features=features)

    def _newest(self, api: Api) -> int:
        return api.versions.high if self.newest is None else min(api.versions.high, self.newest.get(api.key, -1))

    def _usual(self, received: ReceivedRequest) -> Response:
        if isinstance(received.request, MetadataRequest):
            return self.metadata(received.request)
        raise AssertionError(f"the script has no answer to {received.request}")

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Leads everything itself."""
        asked = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataBroker(node_id=BROKER_ID, host=self.address.host, port=self.address.port, rack=self.rack)],
            cluster_id="scripted",
            controller_id=BROKER_ID,
            topics=[self._topic(name) for name in asked],
        )

    def _topic(self, name: str) -> MetadataTopicResponse:
        if name not in self.topics:
            return MetadataTopicResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        partitions = [
            MetadataPartitionResponse(
                partition_index=index,
                leader_id=BROKER_ID,
                leader_epoch=self.leader_epoch,
                replica_nodes=[BROKER_ID],
                isr_nodes=[BROKER_ID],
            )
            for index in range(self.topics[name])
        ]
        return MetadataTopicResponse(name=name, topic_id=TOPIC_ID, partitions=partitions)
