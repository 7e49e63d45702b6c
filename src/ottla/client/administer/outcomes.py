"""Results of operations on several items, and what all areas of the admin client share.

The convention in this package: an operation on several items is attempted for each of them. If all succeed, the method
returns a dict of results (or None). If some fail, it raises one `SomeRefusedError` with the errors and the results by
name, so that a failure cannot be overlooked. A broker that cannot be reached raises a `BrokerConnectionError` for all
items.

Transient errors (no leader yet, another coordinator) are retried within `default.api.timeout.ms`. A missing topic or
partition is final: unlike a producer, an administrator knows what exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.config import AdminConfig
from ottla.client.errors import ClientError, RefusedError
from ottla.net.client_connection import ClientConnection, UnsupportedApiError
from ottla.wire.schema import Request, Response

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
AnyResponse = TypeVar("AnyResponse", bound=Response)

NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class SomeRefusedError(RefusedError, Generic[K, V]):
    """At least one item failed. `errors` has the errors by name, `results` the results of the others; code and message
    are those of the first error."""

    def __init__(self, errors: Mapping[K, RefusedError], results: Mapping[K, V]) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.code, first.subject, first.message)
        self.errors = dict(errors)
        self.results = dict(results)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors.values()))


def refusal(code: int, subject: str, message: str | None = None) -> RefusedError | None:
    return RefusedError(code, subject, message) if code else None


def results_of(outcomes: Mapping[K, V | RefusedError]) -> dict[K, V]:
    """The results, if nothing failed."""
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, RefusedError)}
    results = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, RefusedError)}
    if errors:
        raise SomeRefusedError(errors, results)
    return results


class Area:
    """A part of the admin client. The parts share a cluster, which the admin client closes."""

    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config

    @property
    def _timeout_ms(self) -> int:
        """The timeout that is sent to a broker for long operations."""
        return self._config.request_timeout_ms

    # Several things at once.

    async def _settle(
        self,
        names: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Mapping[K, V | RefusedError]]],
        *,
        final: Collection[ErrorCode] = NOT_THERE,
    ) -> dict[K, V]:
        """The result of each name. Transient errors are retried; the remaining ones are raised together."""
        wanted = list(dict.fromkeys(names))
        outcomes: dict[K, V | RefusedError] = {}

        def is_open(name: K) -> bool:
            outcome = outcomes.get(name)
            if isinstance(outcome, RefusedError):
                return outcome.retriable and outcome.code not in final
            return name not in outcomes

        async def again() -> None:
            asked = [name for name in wanted if is_open(name)]
            answered = await attempt(asked)
            for name in asked:
                silence = RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, str(name), "the response does not mention it")
                outcomes[name] = answered.get(name, silence)
            for name in asked:
                outcome = outcomes[name]
                if isinstance(outcome, RefusedError) and is_open(name):
                    raise outcome

        if wanted:
            try:
                await self._cluster.retry(again)
            except RefusedError:
                if len(outcomes) < len(wanted):
                    raise
        return results_of(outcomes)

    # Where requests go.

    async def _connection(self, broker_id: int | None) -> ClientConnection:
        """Sends to this broker, or to any."""
        if broker_id is None:
            return await self._cluster.any_connection()
        if broker_id not in self._cluster.brokers:
            await self._cluster.refresh()
        if broker_id not in self._cluster.brokers:
            known = ", ".join(map(str, sorted(self._cluster.brokers)))
            raise ClientError(f"there is no broker {broker_id} in the cluster; its brokers are {known}")
        return await self._cluster.connection(broker_id)

    async def _ask(
        self, broker_id: int | None, request: Request, response: type[AnyResponse], *, since: int = 0, why: str = ""
    ) -> AnyResponse:
        """One attempt at this broker, or at any. `since` and `why`: the required version, and what for."""
        connection = await self._connection(broker_id)
        version = version_of(connection, type(request), since=since, why=why)
        return await connection.send(request, response, version=version)

    async def _ask_controller(
        self, request: Request, response: type[AnyResponse], *, since: int = 0, why: str = ""
    ) -> AnyResponse:
        """One attempt at the controller."""
        connection = await self._cluster.controller_connection()
        version = version_of(connection, type(request), since=since, why=why)
        return await connection.send(request, response, version=version)

    async def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, RefusedError]]:
        """The partitions by the id of their leader, and the errors of those without one."""
        partitions = list(partitions)
        await self._learn({one.topic for one in partitions if self._cluster.known_leader(one) is None})
        by_leader: dict[int, list[TopicPartition]] = {}
        refused: dict[TopicPartition, RefusedError] = {}
        for partition in partitions:
            leader_id = self._cluster.known_leader(partition)
            if leader_id is None:
                refused[partition] = self._without_leader(partition)
            else:
                by_leader.setdefault(leader_id, []).append(partition)
        return by_leader, refused

    async def _learn(self, topics: Collection[str]) -> None:
        if topics:
            try:
                await self._cluster.refresh(topics)
            except RefusedError as error:
                if error.retriable:
                    raise
                # A name that no topic can have: what was told of the others is known.

    def _without_leader(self, partition: TopicPartition) -> RefusedError:
        subject, topic = f"partition {partition}", self._cluster.known_topic(partition.topic)
        if topic is None:
            reason = f"topic {partition.topic!r} does not exist"
            return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, reason)
        if not 0 <= partition.partition < len(topic.partitions):
            reason = f"the topic has partitions 0 to {len(topic.partitions) - 1}"
            return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, reason)
        return RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, subject)


def version_of(
    connection: ClientConnection, request: type[Request], *, since: int = 0, why: str = "", at_most: int | None = None
) -> int:
    """The version to use; an error that says what is not possible if the broker is older than `since`."""
    version = connection.version_for(request, at_most)
    if version < since:
        name = request.__name__.removesuffix("Request")
        raise UnsupportedApiError(
            f"{connection.address} is too old to {why}: this needs {name} v{since}, but it supports v{version}"
        )
    return version


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition indexes of each topic, as most requests need them."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes


def known(number: int) -> int | None:
    """None for the negative numbers that mean unknown."""
    return number if number >= 0 else None
