"""The cluster as a client sees it: connections to its brokers, what they say of topics, and patience within a limit.

A `Cluster` begins with a list of addresses, of which one has to answer; from then on it goes by what brokers say of
each other. Connections are opened when they are first needed, one to a broker, and replaced when they fail. Producer,
consumer and admin share one.

Requests that fail for a reason that passes (a leader that moved, a connection that broke) are made again with fresh
metadata, slower each time, until the time given is over. That nothing answers at the very first attempt is told at
once: it is mostly a wrong address. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.errors import ClientError, ClosedError, RefusedError, UnknownTopicError
from ottla.client.metadata import NO_LEADER, TopicInfo
from ottla.net.client_connection import (
    Address,
    BrokerConnectionError,
    BrokerUnreachableError,
    ClientConnection,
    ConnectionOptions,
    UnsupportedApiError,
    parse_addresses,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.schema import Request, Response

T = TypeVar("T")
AnyResponse = TypeVar("AnyResponse", bound=Response)

NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How long a client is patient."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    retry_backoff_s: float = 0.05
    retry_backoff_max_s: float = 1.0
    api_timeout_s: float = 60.0
    """For one thing that is asked of the cluster, with all its attempts."""


class Deadline:
    """A point in the loop's time."""

    __slots__ = ("_at_s", "_loop")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at_s = self._loop.time() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._at_s - self._loop.time())

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self._at_s


class Backoff:
    """How long to wait before each further attempt: twice the last time, a fifth more or less, up to a limit."""

    __slots__ = ("_max_s", "_next_s")

    def __init__(self, options: ClusterOptions) -> None:
        self._next_s = options.retry_backoff_s
        self._max_s = options.retry_backoff_max_s

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._max_s)
        return wait_s * random.uniform(0.8, 1.2)


class Cluster:
    """Use it as an async context, or `close` it: it holds sockets."""

    def __init__(self, bootstrap: str | Iterable[Address], options: ClusterOptions | None = None) -> None:
        self.bootstrap = parse_addresses(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        if not self.bootstrap:
            raise ValueError("no address of a broker is given: write host:port, for instance localhost:9092")
        self.options = options or ClusterOptions()
        self.cluster_id: str | None = None
        self.controller_id = NO_CONTROLLER
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._distrusted: set[str] = set()
        self._connections: dict[int, ClientConnection] = {}
        self._first: ClientConnection | None = None
        """The one to a bootstrap address, before it is known which broker that is; later on it serves as any other."""
        self._connecting: dict[int, asyncio.Lock] = {}
        self._bootstrapping = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; requests that still wait fail."""
        self._is_closed = True
        connections = [*self._connections.values(), *([self._first] if self._first else [])]
        self._connections.clear()
        self._first = None
        await asyncio.gather(*(connection.close() for connection in connections))

    @property
    def brokers(self) -> Mapping[int, Address]:
        """By their ids, as of the last look."""
        return MappingProxyType(self._brokers)

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None = (), *, create_topics: bool = False) -> list[TopicInfo]:
        """Asks for the brokers and for these topics; `None` stands for all topics. Those that do not exist are left
        out and forgotten; `create_topics` asks the broker to make them, which takes it a moment."""
        names = None if topics is None else list(topics)
        request = MetadataRequest(
            topics=None if names is None else [MetadataTopic(name=name) for name in names],
            allow_auto_topic_creation=create_topics,
        )
        answer = await self.send_to_any(request, MetadataResponse)
        if answer.error_code:
            raise RefusedError(answer.error_code, "metadata of the cluster")
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        found = []
        for topic in answer.topics:
            name = topic.name or ""
            self._distrusted.discard(name)
            if topic.error_code in _NOT_YET_THERE:
                self._topics.pop(name, None)
            elif topic.error_code:
                raise RefusedError(topic.error_code, f"topic {name}")
            else:
                self._topics[name] = info = TopicInfo.of(topic)
                found.append(info)
        return found

    async def topic(self, name: str, *, create: bool = False, fresh: bool = False) -> TopicInfo:
        """What is known of the topic, asked for if nothing is. With `create` the broker is asked to make one that does
        not exist (if it is configured to), and waited for."""
        known = self._topics.get(name)
        if known is not None and not fresh and name not in self._distrusted:
            return known
        deadline, backoff = Deadline(self.options.api_timeout_s if create else 0), Backoff(self.options)
        while True:
            found = await self.refresh([name], create_topics=create)
            if found and (not create or all(one.leader_id != NO_LEADER for one in found[0].partitions)):
                return found[0]
            if deadline.is_over:
                if found:
                    return found[0]
                raise UnknownTopicError(name)
            await asyncio.sleep(min(backoff.next_s(), deadline.left_s))

    def known_topic(self, name: str) -> TopicInfo | None:
        """What the last look told of the topic, without another; its leaders may have changed."""
        return self._topics.get(name)

    def known_leader(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads the partition; None if a look has to tell, or told of none."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.topic in self._distrusted or not 0 <= partition.partition < len(topic.partitions):
            return None
        leader_id = topic.partitions[partition.partition].leader_id
        return leader_id if leader_id in self._brokers else None

    def distrust(self, topic: str) -> None:
        """What is known of its leaders has proved wrong: they have to be asked for again."""
        self._distrusted.add(topic)

    # Requests.

    async def send_to(
        self, broker_id: int, request: Request, response: type[AnyResponse], *, timeout_s: float | None = None
    ) -> AnyResponse:
        """One attempt, at this broker."""
        connection = await self.connection(broker_id)
        return await connection.send(request, response, timeout_s=timeout_s)

    async def send_to_any(self, request: Request, response: type[AnyResponse]) -> AnyResponse:
        """An answer from whichever broker gives one, those we are connected to first."""
        return await (await self.any_connection()).send(request, response)

    async def send_to_controller(self, request: Request, response: type[AnyResponse]) -> AnyResponse:
        """One attempt, at the broker that decides for the cluster."""
        return await (await self.controller_connection()).send(request, response)

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """What the attempt gives; made again, with fresh metadata, for as long as what it raises may pass."""
        deadline = Deadline(self.options.api_timeout_s if timeout_s is None else timeout_s)
        backoff = Backoff(self.options)
        if not self._brokers:
            await self.any_connection()
        while True:
            try:
                return await attempt()
            except (BrokerConnectionError, RefusedError) as error:
                if not may_pass(error) or deadline.is_over:
                    raise
                self.controller_id = NO_CONTROLLER
                self._distrusted.update(self._topics)
            await asyncio.sleep(min(backoff.next_s(), deadline.left_s))

    # Connections.

    async def connection(self, broker_id: int) -> ClientConnection:
        """The connection to a broker, opened if there is none."""
        connection = self._connections.get(broker_id)
        if connection is not None and connection.is_open:
            return connection
        async with self._connecting.setdefault(broker_id, asyncio.Lock()):
            self._check_open()
            connection = self._connections.get(broker_id)
            if connection is None or not connection.is_open:
                address = self._brokers.get(broker_id)
                if address is None:
                    raise BrokerUnreachableError(f"broker {broker_id} is not known in the cluster")
                if self._first is not None and self._first.is_open and self._first.address == address:
                    connection, self._first = self._first, None
                else:
                    connection = await self._open(address)
                self._connections[broker_id] = connection
            return connection

    async def controller_connection(self) -> ClientConnection:
        """The connection to the broker that decides for the cluster."""
        if self.controller_id == NO_CONTROLLER:
            await self.refresh()
        if self.controller_id not in self._brokers:
            raise RefusedError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.connection(self.controller_id)

    async def any_connection(self) -> ClientConnection:
        """One that is open already; or to a broker that is known; or to the first bootstrap address that answers."""
        for connection in (*self._connections.values(), self._first):
            if connection is not None and connection.is_open:
                return connection
        async with self._bootstrapping:
            if self._first is not None and self._first.is_open:
                return self._first
            failures = []
            known = [address for address in self._brokers.values() if address not in self.bootstrap]
            for address in (*known, *self.bootstrap):
                try:
                    self._first = await self._open(address)
                except BrokerUnreachableError as error:
                    failures.append(str(error))
                else:
                    return self._first
        raise BrokerUnreachableError("no broker can be reached; " + "; ".join(failures))

    async def _open(self, address: Address) -> ClientConnection:
        self._check_open()
        connection = await ClientConnection.open(address, self.options.connection)
        if self._is_closed:
            await connection.close()
            self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed")


_NOT_YET_THERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


def may_pass(error: Exception) -> bool:
    """Whether another attempt can end better."""
    match error:
        case UnsupportedApiError():
            return False
        case BrokerConnectionError():
            return True
        case RefusedError():
            return error.retriable
        case ClientError():
            return False
    return False
