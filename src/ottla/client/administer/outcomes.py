"""What becomes of several things that are asked for at once, and what all areas of an admin share.

The convention, everywhere in this package: what is asked for several things is carried as far as it goes for each of
them. If all went well, the method returns a dict of their results (or nothing, where there is nothing to tell). If some
were refused, it raises one `SomeRefusedError`, with the refusals and the results by name: a failure is never overlooked
because nobody looked into a dict. A broker that cannot be asked raises a `BrokerConnectionError` for all.

Reasons that pass (no leader yet, another coordinator) are waited out first, within `default.api.timeout.ms`. That a
topic or partition is not there counts as final: unlike a producer, whoever administers knows what exists.
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
    """At least one of the things that were asked for was refused. `errors` has the refusals by name, `results` what
    came of the others; code and message are those of the first refusal."""

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
    """The results, if nothing was refused."""
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, RefusedError)}
    results = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, RefusedError)}
    if errors:
        raise SomeRefusedError(errors, results)
    return results


class Area:
    """Some of what an admin can do. Areas share a cluster, which is the admin's to close."""

    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config

    @property
    def _timeout_ms(self) -> int:
        """What a broker is given for what takes it a while."""
        return self._config.request_timeout_ms

    # Several things at once.

    async def _settle(
        self,
        names: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Mapping[K, V | RefusedError]]],
        *,
        final: Collection[ErrorCode] = NOT_THERE,
    ) -> dict[K, V]:
        """Each name's result. Those that were refused for a reason that passes are asked for again; those refused in
        the end are raised together."""
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
        """To this broker, or to any."""
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
        """One attempt at this broker, or at any; `since` and `why`: the version it takes, and what for."""
        connection = await self._connection(broker_id)
        version = version_of(connection, type(request), since=since, why=why)
        return await connection.send(request, response, version=version)

    async def _ask_controller(
        self, request: Request, response: type[AnyResponse], *, since: int = 0, why: str = ""
    ) -> AnyResponse:
        """One attempt at the broker that decides for the cluster."""
        connection = await self._cluster.controller_connection()
        version = version_of(connection, type(request), since=since, why=why)
        return await connection.send(request, response, version=version)

    async def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, RefusedError]]:
        """The partitions by the id of their leader, and why others have none."""
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
    """The version to ask in; an error that says what cannot be done if the broker is older than `since`."""
    version = connection.version_for(request, at_most)
    if version < since:
        name = request.__name__.removesuffix("Request")
        raise UnsupportedApiError(
            f"{connection.address} is too old to {why}: this needs {name} v{since}, but it supports v{version}"
        )
    return version


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes of each topic's partitions, as most requests want them."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes


def known(number: int) -> int | None:
    """What brokers tell by -1, or any other negative number, is not known."""
    return number if number >= 0 else None
