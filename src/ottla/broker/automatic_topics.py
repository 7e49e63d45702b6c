"""Topics that are made because somebody asks for them: with the broker's defaults, or as the broker itself needs
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.controller import NewTopic
from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    if name == OFFSETS_TOPIC:
        return NewTopic(
            name,
            partition_count=config["offsets.topic.num.partitions"],
            replication_factor=config["offsets.topic.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )
    if name == TRANSACTIONS_TOPIC:
        return NewTopic(
            name,
            partition_count=config["transaction.state.log.num.partitions"],
            replication_factor=config["transaction.state.log.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(
        name,
        partition_count=config["num.partitions"],
        replication_factor=config["default.replication.factor"],
    )
