"""AlterPartition: leaders propose a new ISR (KIP-497). Checked in Kafka's order; the tree is written conditionally.

| in this order, if | then |
| --- | --- |
| the partition is unknown or never had a leader | UNKNOWN_TOPIC_OR_PARTITION, an unknown topic id UNKNOWN_TOPIC_ID |
| leader epoch or partition epoch are higher than known | NOT_CONTROLLER: this controller is probably replaced |
| the leader epoch is lower | FENCED_LEADER_EPOCH |
| the partition is already in that state | success: the answer to an earlier request was lost |
| the partition epoch is lower | INVALID_UPDATE_VERSION |
| still recovering, with more than the leader in the ISR | INVALID_REQUEST |
| recovering again | INVALID_REQUEST |
| a member is not alive, shuts down or was restarted since | INELIGIBLE_REPLICA, before v2 OPERATION_NOT_ATTEMPTED |
| the node was written by others meanwhile | INVALID_UPDATE_VERSION |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.controller.core.context import ControllerContext
from ottla.controller.core.effects import Step, write_states
from ottla.controller.core.leadership import Leadership
from ottla.controller.core.request_batch import RequestBatch
from ottla.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """The response, and the partitions whose ISR is as proposed now."""

    response: AlterPartitionResponse
    changed: tuple[TopicPartition, ...] = ()


def alter_partitions(
    context: ControllerContext, request: AlterPartitionRequest, version: int
) -> Step[AlteredPartitions]:
    sender = context.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        _logger.info(
            "refused AlterPartition of broker %d with broker epoch %d; %s",
            request.broker_id,
            request.broker_epoch,
            "it is not registered" if sender is None else f"its epoch is {sender.epoch}",
        )
        return AlteredPartitions(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    answers: dict[TopicPartition, ErrorCode | Leadership] = {}
    wanted: dict[TopicPartition, Leadership] = {}
    unknown: list[AlterPartitionTopicResponse] = []
    for topic in request.topics:
        topic_name = context.topic_names.get(topic.topic_id) if version >= 2 else topic.topic_name
        if topic_name is None:
            unknown.append(
                AlterPartitionTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        _refusal(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
                        for partition in topic.partitions
                    ],
                )
            )
            continue
        for partition in topic.partitions:
            name = TopicPartition(topic_name, partition.partition_index)
            outcome = _proposed(context, name, request.broker_id, partition, version)
            if isinstance(outcome, _Proposal):
                wanted[name] = outcome.leadership
            else:
                answers[name] = outcome
    written = yield from write_states(wanted)
    for name in wanted:
        if name in written:
            context.set_leadership(name, written[name])
            answers[name] = written[name]
        else:
            answers[name] = ErrorCode.INVALID_UPDATE_VERSION
    batch = RequestBatch(context)
    # Also about those refused: the leader may not know what has changed.
    batch.tell_metadata(answers)
    yield from batch.send()
    response = AlterPartitionResponse(topics=[*unknown, *_answers(context, answers, version)])
    return AlteredPartitions(response, tuple(name for name, each in answers.items() if isinstance(each, Leadership)))


@dataclass(frozen=True, slots=True)
class _Proposal:
    leadership: Leadership


def _proposed(
    context: ControllerContext, name: TopicPartition, sender: int, partition: AlterPartitionPartition, version: int
) -> _Proposal | Leadership | ErrorCode:
    """The leadership to be written, the one that is there already, or why not."""
    current, assignment = context.leaderships.get(name), context.assignment(name)
    if current is None or assignment is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 3:
        isr = tuple(member.broker_id for member in partition.new_isr_with_epochs)
    else:
        isr = tuple(partition.new_isr)
    is_recovering = partition.leader_recovery_state == 1
    if partition.partition_epoch > current.version or partition.leader_epoch > current.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if partition.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender == current.leader and isr == current.isr and is_recovering == current.is_recovering:
        return current
    if partition.partition_epoch < current.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    # No broker of Kafka's sends these. An ISR without its leader would make the leader count no longer.
    if sender != current.leader or sender not in isr or len(set(isr)) < len(isr):
        return ErrorCode.INVALID_REQUEST
    if not {*assignment.replicas, *current.isr}.issuperset(isr):
        return ErrorCode.INVALID_REQUEST
    if is_recovering and (len(isr) > 1 or not current.is_recovering):
        return ErrorCode.INVALID_REQUEST
    if not all(context.is_live(member) for member in isr) or not _epochs_match(context, partition):
        _logger.info("refused ISR %s of %s: not all of these brokers are alive", isr, name)
        return ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    return _Proposal(replace(current, isr=isr, is_recovering=is_recovering))


def _epochs_match(context: ControllerContext, partition: AlterPartitionPartition) -> bool:
    """Whether no member was restarted since it caught up (KIP-903). Epochs that the leader does not know are -1."""
    return all(
        member.broker_epoch in (-1, context.brokers[member.broker_id].epoch) for member in partition.new_isr_with_epochs
    )


def _answers(
    context: ControllerContext, answers: dict[TopicPartition, ErrorCode | Leadership], version: int
) -> list[AlterPartitionTopicResponse]:
    topics: dict[str, AlterPartitionTopicResponse] = {}
    for name, answer in answers.items():
        topic = topics.get(name.topic)
        if topic is None:
            if version >= 2:
                topic_id = context.topics[name.topic].topic_id or ZERO_UUID
                topic = AlterPartitionTopicResponse(topic_id=topic_id)
            else:
                topic = AlterPartitionTopicResponse(topic_name=name.topic)
            topics[name.topic] = topic
        if isinstance(answer, Leadership):
            topic.partitions.append(
                AlterPartitionPartitionResponse(
                    partition_index=name.partition,
                    leader_id=answer.leader,
                    leader_epoch=answer.leader_epoch,
                    isr=list(answer.isr),
                    leader_recovery_state=int(answer.is_recovering),
                    partition_epoch=answer.version,
                )
            )
        else:
            topic.partitions.append(_refusal(name.partition, answer))
    return list(topics.values())


def _refusal(index: int, code: ErrorCode) -> AlterPartitionPartitionResponse:
    return AlterPartitionPartitionResponse(partition_index=index, error_code=code)
