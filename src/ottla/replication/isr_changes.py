"""Sends a leader's ISR proposals to the controller with AlterPartition: one request at a time, with all proposals that
came meanwhile.

A proposal is repeated until it is answered, or until the partition no longer wants it because the controller sent it a
new state. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.replication.role import PartitionRole
from ottla.wire.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)
from ottla.wire.peer import PeerError

_logger = logging.getLogger(__name__)

RETRY_S: Final = 0.05


class ProposingPartition(Protocol):
    """A partition, as far as it is needed here."""

    name: TopicPartition
    topic_id: Uuid

    def is_proposing(self, proposal: PartitionRole) -> bool:
        """Whether it still waits for the answer to this proposal."""
        ...

    def broker_epoch_of(self, replica: int) -> int:
        """The broker epoch with which a follower had fetched when it was proposed; -1 if unknown."""
        ...

    def isr_answered(self, proposal: PartitionRole, error: ErrorCode, answer: PartitionRole) -> bool:
        """Takes the answer, which counts if there is no error. Whether to propose the same again."""
        ...


AskController = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Raises `PeerError` if there is no controller or it cannot be reached."""


class IsrChanges:
    """See the module."""

    def __init__(
        self, ask_controller: AskController, broker_id: int, broker_epoch: Callable[[], int], loop: AbstractEventLoop
    ) -> None:
        self._ask = ask_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._waiting: dict[ProposingPartition, PartitionRole] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """The number of proposals that are not sent yet."""
        return len(self._waiting)

    def propose(self, partition: ProposingPartition, proposal: PartitionRole) -> None:
        """Replaces an earlier proposal of the partition that was not sent."""
        if self._is_closed:
            return
        self._waiting[partition] = proposal
        if self._task is None:
            self._task = self._loop.create_task(self._send_all(), name="ISR changes")

    async def close(self) -> None:
        """Drops all proposals."""
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        try:
            while batch := self._take():
                is_done = await self._send(batch)
                if not is_done:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    def _take(self) -> dict[ProposingPartition, PartitionRole]:
        waiting, self._waiting = self._waiting, {}
        return {each: proposal for each, proposal in waiting.items() if each.is_proposing(proposal)}

    async def _send(self, batch: dict[ProposingPartition, PartitionRole]) -> bool:
        """Whether everything was answered; what was not waits again."""
        try:
            response = await self._ask(_request(self._broker_id, self._broker_epoch(), batch))
        except (PeerError, TimeoutError) as error:
            _logger.info("could not propose ISR changes to the controller: %s; trying again", error)
            self._again(batch)
            return False
        except Exception:
            _logger.exception("could not propose ISR changes to the controller; trying again")
            self._again(batch)
            return False
        if response.error_code:
            reason = ErrorCode.of(response.error_code).name
            _logger.info("the controller refused ISR changes: %s; trying again", reason)
            self._again(batch)
            return False
        left = self._settle(batch, response)
        self._again(left)
        return not left

    def _again(self, batch: dict[ProposingPartition, PartitionRole]) -> None:
        """What the partition has proposed since then replaces it."""
        if not self._is_closed:
            self._waiting = batch | self._waiting

    @staticmethod
    def _settle(
        batch: dict[ProposingPartition, PartitionRole], response: AlterPartitionResponse
    ) -> dict[ProposingPartition, PartitionRole]:
        """Returns the proposals that must be sent again."""
        answers = {
            (topic.topic_name if topic.topic_id == ZERO_UUID else topic.topic_id, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }
        left = {}
        for partition, proposal in batch.items():
            index = partition.name.partition
            answer = answers.get((partition.topic_id, index)) or answers.get((partition.name.topic, index))
            if answer is None:
                _logger.warning("the controller did not answer the ISR change of %s; trying again", partition.name)
                left[partition] = proposal
                continue
            role = PartitionRole(
                leader=answer.leader_id,
                leader_epoch=answer.leader_epoch,
                isr=tuple(answer.isr),
                replicas=proposal.replicas,
                partition_epoch=answer.partition_epoch,
                is_recovering=answer.leader_recovery_state == 1,
            )
            try:
                if partition.isr_answered(proposal, ErrorCode.of(answer.error_code), role):
                    left[partition] = proposal
            except Exception:  # the others must get their answers
                _logger.exception("%s could not take the answer to its ISR change", partition.name)
        return left


def _request(
    broker_id: int, broker_epoch: int, batch: dict[ProposingPartition, PartitionRole]
) -> AlterPartitionRequest:
    topics: dict[tuple[str, Uuid], AlterPartitionTopic] = {}
    for partition, proposal in batch.items():
        name, topic_id = partition.name.topic, partition.topic_id
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = AlterPartitionTopic(topic_name=name, topic_id=topic_id)
        topic.partitions.append(
            AlterPartitionPartition(
                partition_index=partition.name.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    AlterPartitionBrokerState(
                        broker_id=replica,
                        broker_epoch=broker_epoch if replica == broker_id else partition.broker_epoch_of(replica),
                    )
                    for replica in proposal.isr
                ],
                leader_recovery_state=int(proposal.is_recovering),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))
