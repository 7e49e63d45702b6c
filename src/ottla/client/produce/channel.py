"""One broker: a connection, and the requests in flight on it.

Requests are written in the order in which they are given, and up to `max.in.flight` of them wait for responses at a
time. Without a connection the channel takes nothing: batches stay in their queues, where other brokers can get them if
leaders move. Belongs to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.config import ProducerConfig
from ottla.client.errors import ClientError
from ottla.client.produce.batch import Batch
from ottla.client.transactions.coordination import ProducerTransactions
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ottla.wire.schema import Response

_LAST_VERSION_BY_NAME: Final = 12
_LAST_OF_TRANSACTION_VERSION_1: Final = 11
"""From the next on, a partition becomes part of a transaction by being written to (KIP-890)."""

Answers = dict[TopicPartition, ProducePartitionResponse]
Answered = Callable[[Sequence[Batch], "Answers | Exception"], None]
"""Called with the batches of a request and with a response for each partition, or the reason why there is none."""


class Channel:
    """To the broker with this id."""

    def __init__(
        self,
        broker_id: int,
        config: ProducerConfig,
        cluster: Cluster,
        answered: Answered,
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.in_flight = 0
        self._config = config
        self._cluster = cluster
        self._answered = answered
        self._transactions = transactions
        self._connection: ClientConnection | None = None
        # Without acknowledgements a batch is done when it is written: one by one, so that memory stays bounded.
        self._in_flight_max = config.max_in_flight_requests_per_connection if config.acks else 1
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def connection(self) -> ClientConnection | None:
        """The connection, if there is one."""
        return self._connection if self.is_connected else None

    @property
    def has_room(self) -> bool:
        """Whether another request can be sent."""
        return self.in_flight < self._in_flight_max

    @property
    def adds_partitions(self) -> bool:
        """Whether the broker makes partitions part of the transactions that it gets records of (version 2)."""
        connection = self._connection
        return connection is not None and connection.version_for(ProduceRequest) > _LAST_OF_TRANSACTION_VERSION_1

    async def connect(self) -> None:
        self._connection = await self._cluster.connection(self.broker_id)

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def send(self, batches: Sequence[Batch]) -> None:
        """Sends one request with these batches, each of another partition; the result goes to `answered`."""
        self.in_flight += 1
        try:
            connection = self._connection
            if connection is None:
                raise ClientError(f"there is no connection to broker {self.broker_id}")
            parts = [(batch.queue.partition, batch.encoded) for batch in batches]
            request, version, names = produce_request(
                self._config, self._cluster, connection, parts, self._transactions
            )
            if self._config.acks == 0:
                loop = asyncio.get_running_loop()
                self._writing = loop.create_task(self._write(connection, request, version, batches))
                return
            timeout_s = self._config.request_timeout_ms / 1000
            connection.post(
                request, lambda answer: self._take(answer, batches, names), version=version, timeout_s=timeout_s
            )
        except Exception as error:  # any error must reach the callers that wait for the batches
            asyncio.get_running_loop().call_soon(self._finish, batches, error)

    async def _write(
        self, connection: ClientConnection, request: ProduceRequest, version: int, batches: Sequence[Batch]
    ) -> None:
        try:
            await connection.send_unanswered(request, version=version)
        except Exception as error:
            self._finish(batches, error)
        else:
            self._finish(batches, {batch.partition: ProducePartitionResponse(base_offset=-1) for batch in batches})

    def _take(self, answer: Response | Exception, batches: Sequence[Batch], names: dict[object, str]) -> None:
        if isinstance(answer, Exception):
            self._finish(batches, answer)
            return
        if not isinstance(answer, ProduceResponse):
            raise TypeError(f"Produce is answered by ProduceResponse, not by {type(answer).__name__}")
        self._finish(
            batches,
            {
                TopicPartition(topic.name or names.get(topic.topic_id, ""), one.index): one
                for topic in answer.responses
                for one in topic.partition_responses
            },
        )

    def _finish(self, batches: Sequence[Batch], outcome: Answers | Exception) -> None:
        self.in_flight -= 1
        self._answered(batches, outcome)


def produce_request(
    config: ProducerConfig,
    cluster: Cluster,
    connection: ClientConnection,
    parts: Iterable[tuple[TopicPartition, bytearray | memoryview | None]],
    transactions: ProducerTransactions | None = None,
) -> tuple[ProduceRequest, int, dict[object, str]]:
    """A request with encoded batches of partitions, its version, and the names of its topics by their ids."""
    topics: dict[str, ProduceTopic] = {}
    at_most: int | None = None
    if transactions is not None and not transactions.is_version_2:
        at_most = _LAST_OF_TRANSACTION_VERSION_1
    for (name, index), encoded in parts:
        topic = topics.get(name)
        if topic is None:
            info = cluster.known_topic(name)
            topic_id = info.topic_id if info is not None else ZERO_UUID
            if topic_id == ZERO_UUID:
                at_most = _LAST_VERSION_BY_NAME if at_most is None else min(at_most, _LAST_VERSION_BY_NAME)
            topics[name] = topic = ProduceTopic(name=name, topic_id=topic_id)
        topic.partition_data.append(ProducePartition(index=index, records=encoded))
    version = connection.version_for(ProduceRequest, at_most=at_most)
    request = ProduceRequest(
        transactional_id=None if transactions is None else transactions.transactional_id,
        acks=config.acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=list(topics.values()),
    )
    return request, version, {topic.topic_id: name for name, topic in topics.items()}
