"""Carries out the controller's decisions on this broker: creates, changes and deletes replicas, and sets their roles.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.base.ids import TopicPartition
from ottla.controller.state import PartitionState, TopicState
from ottla.replication.partition import Partition
from ottla.replication.role import PartitionRole

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.controller.controller import Controller

_logger = logging.getLogger(__name__)

_PARTITIONS_AT_A_TIME: Final = 64


class TopicHost:
    """The controller's `ReplicaHost`."""

    controller: Controller
    """Set by whoever makes both."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks that report failed replicas to the controller."""

    async def apply_topic(self, topic: TopicState, *, new_partitions: frozenset[int]) -> None:
        self._broker.configs.note_topic(topic.name, topic.configs)
        config = self._broker.configs.log_config(topic.name)
        known = self._broker.metadata.topic(topic.name)
        unchanged = () if known is None or known.topic_id != topic.topic_id else known.partitions
        mine = [index for index in sorted(new_partitions) if self._broker.broker_id in topic.partitions[index].replicas]
        self._broker.replicas.expect([TopicPartition(topic.name, index) for index in mine], topic.topic_id, config)
        # In the same iteration of the loop: a partition that is hosted from here on gets its role from this.
        self._broker.metadata.put_topic(topic)
        if topic.name in self._broker.coordinators:
            for index in mine:  # as soon as possible: a client that finds a coordinator should find it ready
                self._broker.replicas.get(topic.name, index)
        for index, state in enumerate(topic.partitions):
            if self._broker.broker_id not in state.replicas or index in new_partitions:
                continue
            name = TopicPartition(topic.name, index)
            if name in self._broker.replicas.expected:
                continue  # it gets its role when its log is created
            if index < len(unchanged) and unchanged[index] is state and self._is_hosted(name):
                continue  # there may be thousands beside the ones that are added
            partition = self._broker.replicas.host(name, topic.topic_id, config, is_new=False)
            log = partition.log
            if partition.must_flush and log is not None:
                try:
                    await asyncio.to_thread(log.flush)
                except OSError as error:  # only one directory fails; partitions in the others are served
                    _logger.error("%s could not be flushed: %s", name, self._broker.directories.log_failed(log, error))
            self._give_role(partition, state)
            if index % _PARTITIONS_AT_A_TIME == _PARTITIONS_AT_A_TIME - 1:
                await asyncio.sleep(0)
        if mine and topic.name in self._broker.coordinators:
            await self._broker.replicas.expected.settled()
        self._broker.group_topics.changed()

    def _is_hosted(self, name: TopicPartition) -> bool:
        partition = self._broker.replicas.partitions.get(name)
        return partition is not None and partition.log is not None

    def _give_role(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._broker.broker_id:
            partition.lead(_role(state), self._broker.replicas.environment.clock_s())
            if partition.log is not None:
                self._broker.coordinators.lead(partition.name, state.leader_epoch)
        else:
            partition.follow(_role(state))
            self._broker.coordinators.resign(partition.name)

    def hosted(self, partition: Partition) -> None:
        """A new partition has its log: sets its role and config to the topic's current ones."""
        name, index = partition.name
        topic = self._broker.metadata.topic(name)
        if topic is None or topic.topic_id != partition.topic_id:
            return  # its deletion follows
        if partition.log is None:
            self.replicas_failed([partition.name])
        else:
            partition.log.update_config(self._broker.configs.log_config(name))
        self._give_role(partition, topic.partitions[index])

    def forget_topics(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            self._broker.metadata.remove_topic(topic)
            if topic.name in self._broker.coordinators:
                self._broker.coordinators[topic.name].service.close()
            self._broker.replicas.let_go(partitions_of(topic))
            self._broker.configs.forget_topic(topic.name)
        coordinators = self._broker.coordinators
        self._broker.groups.topics_deleted([topic.name for topic in topics if topic.name not in coordinators])
        self._broker.group_topics.changed()

    async def delete_replicas(self, topics: Sequence[TopicState]) -> None:
        await self._broker.replicas.delete_many([name for topic in topics for name in partitions_of(topic)])

    def replicas_failed(self, names: list[TopicPartition]) -> None:
        self._broker.check_directories()
        task = asyncio.get_running_loop().create_task(self.controller.replicas_failed(names), name="replicas failed")
        self._tasks.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("could not report failed replicas to the controller: %s", error)

    def topic_config_changed(self, name: str) -> None:
        topic = self._broker.metadata.topic(name)
        if topic is None:
            return
        self.controller.note_configs(name, self._broker.configs.topic_config(name))
        config = self._broker.configs.log_config(name)
        for index in range(len(topic.partitions)):
            partition = self._broker.replicas.partitions.get(TopicPartition(name, index))
            if partition is not None and partition.log is not None:
                partition.log.update_config(config)
                partition.config_changed()

    async def close(self) -> None:
        """Waits until all failed replicas are reported to the controller."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _role(state: PartitionState) -> PartitionRole:
    return PartitionRole(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=state.replicas,
        partition_epoch=state.version,
        controller_epoch=state.controller_epoch,
        adding=state.adding_replicas,
        removing=state.removing_replicas,
    )


def partitions_of(topic: TopicState) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
