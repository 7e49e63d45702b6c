"""Topics that are created automatically: with the broker's defaults, or with the settings of internal topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.controller.wanted_topics import WantedTopic

if TYPE_CHECKING:
    from ottla.broker.configs.broker_config import BrokerConfig

NEW_TOPIC_WAIT_S: Final = 2.0
"""How long a request waits until a topic that it has created has leaders. Clients retry after that."""


def automatic_topic(name: str, config: BrokerConfig, broker_count: int) -> WantedTopic:
    """The topic to create, with `broker_count` brokers alive. An internal topic gets fewer replicas than the default if
    there are fewer brokers; a replication factor from the config is not changed."""
    if name == OFFSETS_TOPIC:
        return WantedTopic(
            name,
            partition_count=config["offsets.topic.num.partitions"],
            replication_factor=_replicas("offsets.topic.replication.factor", config, broker_count),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )
    if name == TRANSACTIONS_TOPIC:
        return WantedTopic(
            name,
            partition_count=config["transaction.state.log.num.partitions"],
            replication_factor=_replicas("transaction.state.log.replication.factor", config, broker_count),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        )
    return WantedTopic(
        name,
        partition_count=config["num.partitions"],
        replication_factor=config["default.replication.factor"],
    )


def _replicas(key: str, config: BrokerConfig, broker_count: int) -> int:
    wanted: int = config[key]
    return wanted if key in config.given else min(wanted, broker_count)
