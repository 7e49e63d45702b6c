"""Asks coordinators on other brokers whether partitions belong to transactions, or to add them (AddPartitionsToTxn).

Questions for one broker are collected, and sent one request at a time: what comes while a request is on its way goes
into the next one, with one entry for each transactional id. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.peer import Peer, PeerError

_logger = logging.getLogger(__name__)

_BROKERS_SINCE: Final = 4
"""The first version for brokers."""


class TransactionKey(NamedTuple):
    """A question about a transaction; those that are equal can be asked together."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool


class _Question(NamedTuple):
    key: TransactionKey
    partition: TopicPartition
    tell: Callable[[ErrorCode], None]


class CoordinatorQueries:
    """The questions to all brokers. `open_peer` connects to one."""

    def __init__(self, open_peer: Callable[[int], Peer]) -> None:
        self._open_peer = open_peer
        self._links: dict[int, _QueryLink] = {}

    def ask(
        self, broker_id: int, key: TransactionKey, partition: TopicPartition, tell: Callable[[ErrorCode], None]
    ) -> None:
        """Calls `tell` with the answer, never before this returns."""
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = _QueryLink(self._open_peer(broker_id), f"broker {broker_id}")
        link.ask(_Question(key, partition, tell))

    def brokers_changed(self, is_alive: Callable[[int], bool]) -> None:
        """Questions to brokers that are gone fail."""
        for broker_id in [each for each in self._links if not is_alive(each)]:
            self._links.pop(broker_id).give_up()

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()


class _QueryLink:
    def __init__(self, peer: Peer, name: str) -> None:
        self._peer = peer
        self._name = name
        self._questions: list[_Question] = []
        self._asking: asyncio.Task[None] | None = None

    def ask(self, question: _Question) -> None:
        self._questions.append(question)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all(), name=f"verifying at {self._name}")

    def give_up(self) -> None:
        self._peer.close()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        self._peer.close()

    async def _ask_all(self) -> None:
        try:
            while self._questions:
                asked, self._questions = _together(self._questions)
                answers = await self._send(asked)
                for question in asked:
                    found = answers if isinstance(answers, ErrorCode) else answers.get(_place(question))
                    try:
                        question.tell(ErrorCode.UNKNOWN_SERVER_ERROR if found is None else found)
                    except Exception:
                        _logger.exception("%s: the answer of a coordinator could not be handled", self._name)
        finally:
            self._asking = None

    async def _send(self, asked: Sequence[_Question]) -> ErrorCode | dict[tuple[str, TopicPartition], ErrorCode]:
        """The answers, or the error for all."""
        request = AddPartitionsToTxnRequest(transactions=_transactions(asked))
        try:
            if await self._peer.version_of(AddPartitionsToTxnRequest) < _BROKERS_SINCE:
                return ErrorCode.NONE  # it is too old to be asked: Kafka does not verify then, either
            response = await self._peer.send(request, AddPartitionsToTxnResponse)
        except PeerError as error:
            _logger.info("%s: transactions could not be verified: %s", self._name, error)
            return ErrorCode.NETWORK_EXCEPTION
        except Exception:  # whoever asked holds up a partition, and must be told
            _logger.exception("%s: transactions could not be verified", self._name)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            _logger.error("%s refuses to verify transactions: %s", self._name, code.name)
            # Producers know nothing of requests between brokers.
            return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
        return {
            (found.transactional_id, TopicPartition(topic.name, each.partition_index)): ErrorCode.of(
                each.partition_error_code
            )
            for found in response.results_by_transaction
            for topic in found.topic_results
            for each in topic.results_by_partition
        }


def _place(question: _Question) -> tuple[str, TopicPartition]:
    return question.key.transactional_id, question.partition


def _together(questions: list[_Question]) -> tuple[list[_Question], list[_Question]]:
    """The questions for one request, in which each transactional id has one entry, and the rest."""
    keys: dict[str, TransactionKey] = {}
    asked: list[_Question] = []
    rest: list[_Question] = []
    for question in questions:
        known = keys.setdefault(question.key.transactional_id, question.key)
        (asked if known == question.key else rest).append(question)
    return asked, rest


def _transactions(asked: Sequence[_Question]) -> list[AddPartitionsToTxnTransaction]:
    partitions: dict[TransactionKey, dict[str, dict[int, None]]] = {}
    for question in asked:
        topics = partitions.setdefault(question.key, {})
        topics.setdefault(question.partition.topic, {})[question.partition.partition] = None
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=key.transactional_id,
            producer_id=key.producer_id,
            producer_epoch=key.producer_epoch,
            verify_only=key.verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=list(each)) for name, each in topics.items()],
        )
        for key, topics in partitions.items()
    ]
