"""The cluster from a client's point of view: brokers, topic metadata, and retries within a timeout.

A `Cluster` starts with a list of bootstrap addresses, one of which must be reachable; after that it uses the brokers'
metadata. Each producer, consumer and admin has one.

Requests that fail for a transient reason (the leader moved, a connection was lost) are retried with fresh metadata and
exponential backoff until the timeout. So is the first connection, because the broker may be starting. Only an invalid
address (an unknown host name, a port with another service) fails at once. The timeout also applies if a broker accepts
requests and does not answer. Metadata is refreshed when it has proved wrong, and when it is old. Belongs to one event
loop.
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
from ottla.client.teardown import to_the_end
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
    """Timeouts, and how long connections and metadata are kept."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    retry_backoff_s: float = 0.05
    retry_backoff_max_s: float = 1.0
    api_timeout_s: float = 60.0
    """Timeout of one operation, including retries."""
    connect_timeout_max_s: float = 30.0
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    connection_idle_s: float | None = 540.0
    """Idle time after which a connection is closed; None means never."""
    metadata_age_max_s: float = 300.0
    """Age at which topic metadata is refreshed."""
    metadata_idle_s: float = 300.0
    """Idle time after which the metadata of a topic is dropped."""
    rebootstrap: bool = True
    """Whether to use the bootstrap addresses again if no known broker is available."""

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
    """The wait before each retry: twice the previous one, with 20 % jitter, up to a maximum."""

    __slots__ = ("_max_s", "_next_s")

    def __init__(self, options: ClusterOptions) -> None:
        self._next_s = options.retry_backoff_s
        self._max_s = options.retry_backoff_max_s

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._max_s)
        return wait_s * random.uniform(0.8, 1.2)


class Cluster:
    """Use it as an async context manager, or call `close`: it holds sockets."""

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
            raise ArgumentError("the list of brokers is empty; use host:port, for example localhost:9092")
        self.cluster_id: str | None = None
        self.controller_id = NO_CONTROLLER
        self._connections = Connections(self.bootstrap, self.options.reconnect)
        self._brokers: dict[int, Address] = {}
        self._racks: dict[int, str | None] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._distrusted: set[str] = set()
        self.on_other_topics: Callable[[], None] = lambda: None
        """Called when a known topic was deleted, was created again, or has more partitions."""
        self._used_at_s: dict[str, float] = {}
        """When the metadata of each topic was last used."""
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
        """Closes all connections; pending requests fail."""
        await to_the_end(self._close())

    async def _close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait([self._upkeep])
        if self._next_upkeep is not None:
            self._next_upkeep.cancel()
        await self._connections.close()

    @property
    def brokers(self) -> Mapping[int, Address]:
        """Brokers by id, from the latest metadata."""
        return MappingProxyType(self._brokers)

    @property
    def racks(self) -> Mapping[int, str | None]:
        """The rack of each broker, if known."""
        return MappingProxyType(self._racks)

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None = (), *, create_topics: bool = False) -> list[TopicInfo]:
        """Fetches the metadata of the brokers and of these topics; `None` means all topics. Topics that do not exist
        are left out and dropped; with `create_topics`, the broker creates them, which takes a moment."""
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
            raise RefusedError(answer.error_code, "cluster metadata")
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
        """The metadata of the topic, fetched if necessary. With `create`, the broker creates a missing topic (if it is
        configured to), and this waits for it."""
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
        """The cached metadata of the topic; its leaders may have changed."""
        return self._topics.get(name)

    def known_leader(self, partition: TopicPartition) -> int | None:
        """The id of the leader of the partition; None if it is unknown or there is none."""
        self._used_at_s[partition.topic] = time.monotonic()
        topic = self._topics.get(partition.topic)
        if topic is None or partition.topic in self._distrusted or not 0 <= partition.partition < len(topic.partitions):
            return None
        leader_id = topic.partitions[partition.partition].leader_id
        return leader_id if leader_id in self._brokers else None

    def distrust(self, topic: str) -> None:
        """Marks the cached leaders as wrong, so that they are fetched again."""
        self._distrusted.add(topic)

    # Requests.

    async def send_to(
        self, broker_id: int, request: Request, response: type[AnyResponse], *, timeout_s: float | None = None
    ) -> AnyResponse:
        """One attempt, at this broker."""
        connection = await self.connection(broker_id)
        return await connection.send(request, response, timeout_s=timeout_s)

    async def send_to_any(self, request: Request, response: type[AnyResponse]) -> AnyResponse:
        """A response from any broker, preferably one with an open connection."""
        return await (await self.any_connection()).send(request, response)

    async def send_to_controller(self, request: Request, response: type[AnyResponse]) -> AnyResponse:
        """One attempt, at the controller."""
        return await (await self.controller_connection()).send(request, response)

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """Runs the attempt; retries it with fresh metadata as long as its error is transient."""
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
                    _logger.warning("%s. Retrying for %g s", error, timeout_s)
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
        """The connection to a broker, opened if necessary. A request that must not delay others, such as a long-poll
        fetch, uses its own lane."""
        return await self._connections.to(broker_id, lane)

    async def controller_connection(self) -> ClientConnection:
        """The connection to the controller."""
        if self.controller_id == NO_CONTROLLER:
            await self.refresh()
        if self.controller_id not in self._brokers:
            raise RefusedError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return await self.connection(self.controller_id)

    async def any_connection(self) -> ClientConnection:
        """An open connection, or one to the first of the known brokers and bootstrap addresses that can be reached."""
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
            _logger.debug("metadata refresh failed: %s", error)
        except Exception:
            _logger.exception("metadata refresh failed")
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
    """The last of several errors, with the number of attempts."""
    if attempts == 1 or isinstance(error, NoBrokerError):  # which says it of each broker
        return error
    tried = f"tried {attempts} times in {seconds:.1f} s"
    if isinstance(error, RefusedError):
        return RefusedError(error.code, error.subject, f"{error.message.rstrip('.')}; {tried}")
    return type(error)(f"{error}; {tried}")


def is_wrong_address(error: Exception) -> bool:
    """Whether the address itself is invalid, so that retrying is useless."""
    return isinstance(error, BrokerUnreachableError) and error.is_wrong_address


def may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed."""
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
