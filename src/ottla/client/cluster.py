"""The cluster as a client sees it: its brokers, what they say of topics, and patience within a limit.

A `Cluster` begins with a list of addresses, of which one has to answer; from then on it goes by what brokers say of
each other. Producer, consumer and admin each have one.

Requests that fail for a reason that passes (a leader that moved, a connection that broke) are made again with fresh
metadata, slower each time, until the time given is over; and so is the very first contact, because the broker may be
starting. Only an address that is wrong by itself (a name that does not exist, a port where something else answers) is
told at once. The time is kept also when a broker takes requests and answers none. What is known of topics is asked
for again when it has proved wrong, and when it is old. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.config import CommonConfig, ProducerConfig
from ottla.client.connections import Connections, ReconnectOptions
from ottla.client.errors import ArgumentError, ClientError, NoBrokerError, OttlaError, RefusedError, UnknownTopicError
from ottla.client.metadata import NO_LEADER, TopicInfo
from ottla.net.client_connection import (
    Address,
    BrokerConnectionError,
    BrokerUnreachableError,
    ClientConnection,
    ConnectionOptions,
    RequestTimeoutError,
    UnsupportedApiError,
    parse_addresses,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.schema import Request, Response

T = TypeVar("T")
AnyResponse = TypeVar("AnyResponse", bound=Response)

NO_CONTROLLER: Final = -1

_logger = logging.getLogger(__name__)
_UPKEEP_PAUSE_MIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How long a client is patient, and how long it keeps what it has."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    retry_backoff_s: float = 0.05
    retry_backoff_max_s: float = 1.0
    api_timeout_s: float = 60.0
    """For one thing that is asked of the cluster, with all its attempts."""
    connect_timeout_max_s: float = 30.0
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    connection_idle_s: float | None = 540.0
    """After which a connection is closed; None keeps it."""
    metadata_age_max_s: float = 300.0
    """After which topics are asked for again."""
    metadata_idle_s: float = 300.0
    """After which a topic that nobody asks about is forgotten."""
    rebootstrap: bool = True
    """Whether the bootstrap addresses are asked again when no known broker answers."""

    @classmethod
    def of(cls, config: CommonConfig) -> Self:
        return cls(
            connection=ConnectionOptions(
                client_id=config.client_id,
                connect_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
                request_timeout_s=config.request_timeout_ms / 1000,
                receive_buffer_bytes=_unless_negative(config.receive_buffer_bytes),
                send_buffer_bytes=_unless_negative(config.send_buffer_bytes),
            ),
            retry_backoff_s=config.retry_backoff_ms / 1000,
            retry_backoff_max_s=config.retry_backoff_max_ms / 1000,
            api_timeout_s=config.api_timeout_ms / 1000,
            connect_timeout_max_s=config.socket_connection_setup_timeout_max_ms / 1000,
            reconnect_backoff_s=config.reconnect_backoff_ms / 1000,
            reconnect_backoff_max_s=config.reconnect_backoff_max_ms / 1000,
            connection_idle_s=None if config.connections_max_idle_ms < 0 else config.connections_max_idle_ms / 1000,
            metadata_age_max_s=config.metadata_max_age_ms / 1000,
            metadata_idle_s=config.metadata_max_idle_ms / 1000 if isinstance(config, ProducerConfig) else 300.0,
            rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )

    @property
    def reconnect(self) -> ReconnectOptions:
        return ReconnectOptions(
            connection=self.connection,
            connect_timeout_max_s=self.connect_timeout_max_s,
            backoff_s=self.reconnect_backoff_s,
            backoff_max_s=self.reconnect_backoff_max_s,
            idle_s=self.connection_idle_s,
            rebootstrap=self.rebootstrap,
        )


def _unless_negative(number: int) -> int | None:
    return None if number < 0 else number


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

    def __init__(
        self, bootstrap: CommonConfig | str | Iterable[Address], options: ClusterOptions | None = None
    ) -> None:
        if isinstance(bootstrap, CommonConfig):
            self.bootstrap = list(bootstrap.bootstrap_servers)
            self.options = options or ClusterOptions.of(bootstrap)
        else:
            self.bootstrap = parse_addresses(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
            self.options = options or ClusterOptions()
        if not self.bootstrap:
            raise ArgumentError("no address of a broker is given: write host:port, for instance localhost:9092")
        self.cluster_id: str | None = None
        self.controller_id = NO_CONTROLLER
        self._connections = Connections(self.bootstrap, self.options.reconnect)
        self._brokers: dict[int, Address] = {}
        self._racks: dict[int, str | None] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._distrusted: set[str] = set()
        self.on_other_topics: Callable[[], None] = lambda: None
        """Called when a topic that was known is gone, was created again, or has more partitions."""
        self._used_at_s: dict[str, float] = {}
        """When each topic was last asked about."""
        self._refreshed_at_s = time.monotonic()
        self._next_upkeep: asyncio.TimerHandle | None = None
        self._upkeep: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; requests that still wait fail."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait([self._upkeep])
        if self._next_upkeep is not None:
            self._next_upkeep.cancel()
        await self._connections.close()

    @property
    def brokers(self) -> Mapping[int, Address]:
        """By their ids, as of the last look."""
        return MappingProxyType(self._brokers)

    @property
    def racks(self) -> Mapping[int, str | None]:
        """Where each broker stands, if it says."""
        return MappingProxyType(self._racks)

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
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            # The brokers that are known are not those of our cluster any more (KIP-1102).
            await self._connections.begin_again()
            answer = await self.send_to_any(request, MetadataResponse)
        if answer.error_code:
            raise RefusedError(answer.error_code, "metadata of the cluster")
        self._take_brokers(answer)
        found, refused, is_other = [], None, False
        for topic in answer.topics:
            name = topic.name or ""
            self._distrusted.discard(name)
            known = self._topics.get(name)
            if topic.error_code in _NOT_YET_THERE:
                self._topics.pop(name, None)
                is_other = is_other or known is not None
            elif topic.error_code:
                refused = refused or RefusedError(topic.error_code, f"topic {name}")
            else:
                info = TopicInfo.of(topic).not_older_than(known)
                self._topics[name] = info
                is_other = is_other or not info.has_partitions_of(known)
                self._used_at_s.setdefault(name, time.monotonic())
                found.append(info)
        if is_other:
            self.on_other_topics()
        if refused is not None:
            raise refused
        return found

    def _take_brokers(self, answer: MetadataResponse) -> None:
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._racks = {broker.node_id: broker.rack for broker in answer.brokers}
        self._connections.brokers = self._brokers
        if self._next_upkeep is None:
            self._refreshed_at_s = time.monotonic()
            self._plan_upkeep()

    async def topic(self, name: str, *, create: bool = False, fresh: bool = False) -> TopicInfo:
        """What is known of the topic, asked for if nothing is. With `create` the broker is asked to make one that does
        not exist (if it is configured to), and waited for."""
        self._used_at_s[name] = time.monotonic()
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
        self._used_at_s[partition.topic] = time.monotonic()
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
        timeout_s = self.options.api_timeout_s if timeout_s is None else timeout_s
        deadline, backoff = Deadline(timeout_s), Backoff(self.options)
        began_at_s, attempts = time.monotonic(), 0
        failure: BrokerConnectionError | RefusedError | None = None
        while True:
            try:
                async with asyncio.timeout(deadline.left_s) as limit:
                    if not self._brokers:
                        await self.any_connection()
                    return await attempt()
            except (BrokerConnectionError, RefusedError) as error:
                failure, attempts = error, attempts + 1
                if not may_pass(error) or (not self._brokers and is_wrong_address(error)):
                    raise
                if attempts == 1 and not self._brokers and not deadline.is_over:
                    _logger.warning("%s. Trying again for %g s", error, timeout_s)
            except TimeoutError:
                if not limit.expired():
                    raise
                failure = failure or RequestTimeoutError(f"no broker answered within {timeout_s:g} s")
                attempts += 1
            self.controller_id = NO_CONTROLLER
            self._distrusted.update(self._topics)
            await asyncio.sleep(min(backoff.next_s(), deadline.left_s))
            if deadline.is_over:
                raise _after(failure, attempts, time.monotonic() - began_at_s) from failure

    # Connections.

    async def connection(self, broker_id: int, lane: str = "") -> ClientConnection:
        """The connection to a broker, opened if there is none. What others must not wait behind, like a fetch that
        waits for records, goes by a lane of its own."""
        return await self._connections.to(broker_id, lane)

    async def controller_connection(self) -> ClientConnection:
        """The connection to the broker that decides for the cluster."""
        if self.controller_id == NO_CONTROLLER:
            await self.refresh()
        if self.controller_id not in self._brokers:
            raise RefusedError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.connection(self.controller_id)

    async def any_connection(self) -> ClientConnection:
        """One that is open already; or to the first that answers, of the known brokers and the bootstrap addresses."""
        return await self._connections.to_any()

    # Upkeep.

    def _plan_upkeep(self) -> None:
        idle_s = self.options.connection_idle_s
        pauses_s = [self.options.metadata_age_max_s, *([] if idle_s is None else [idle_s / 2])]
        pause_s = max(min(pauses_s), _UPKEEP_PAUSE_MIN_S)
        self._next_upkeep = asyncio.get_running_loop().call_later(pause_s, self._begin_upkeep)

    def _begin_upkeep(self) -> None:
        self._upkeep = asyncio.create_task(self._look_after(), name="ottla-cluster-upkeep")

    async def _look_after(self) -> None:
        try:
            await self._connections.close_idle()
            now_s = time.monotonic()
            if now_s - self._refreshed_at_s >= self.options.metadata_age_max_s:
                self._refreshed_at_s = now_s
                self._forget_unused(now_s)
                await self.refresh(list(self._topics))
        except OttlaError as error:
            _logger.debug("metadata stay as old as they are: %s", error)
        except Exception:
            _logger.exception("metadata stay as old as they are")
        self._plan_upkeep()

    def _forget_unused(self, now_s: float) -> None:
        for name, used_at_s in list(self._used_at_s.items()):
            if now_s - used_at_s >= self.options.metadata_idle_s:
                del self._used_at_s[name]
                self._topics.pop(name, None)
                self._distrusted.discard(name)


_NOT_YET_THERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


def _after(error: BrokerConnectionError | RefusedError, attempts: int, seconds: float) -> Exception:
    """The last of several failures, with how much was tried."""
    if attempts == 1 or isinstance(error, NoBrokerError):  # which says it of each broker
        return error
    tried = f"tried {attempts} times in {seconds:.1f} s"
    if isinstance(error, RefusedError):
        return RefusedError(error.code, error.subject, f"{error.message.rstrip('.')}; {tried}")
    return type(error)(f"{error}; {tried}")


def is_wrong_address(error: Exception) -> bool:
    """Whether what was given as an address of a broker is none: no use to try it again."""
    return isinstance(error, BrokerUnreachableError) and error.is_wrong_address


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
