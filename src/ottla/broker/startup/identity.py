"""A broker's identity: its cluster and its id. `registration` tells the cluster of it."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from ottla.base.coordination import ConnectionLossError, Coordination, NodeExistsError
from ottla.base.disk import Disk
from ottla.base.ids import format_uuid, random_uuid
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.startup.data_directory import DataDirectoryError, brokers_of
from ottla.controller.topic_nodes import TopicNodes
from ottla.log import names
from ottla.log.checkpoints import MetaProperties
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import decode_cluster_id, encode_cluster_id

_logger = logging.getLogger(__name__)


async def cluster_id_of(coordination: Coordination) -> str:
    """The cluster's id; the first broker creates it."""
    while (node := await coordination.get(paths.CLUSTER_ID)) is None:
        # Another broker may be faster, and an answer may be lost: only what is read counts.
        with suppress(NodeExistsError, ConnectionLossError):
            new_id = encode_cluster_id(format_uuid(random_uuid()))
            await coordination.create(paths.CLUSTER_ID, new_id, parents=True)
    return decode_cluster_id(paths.CLUSTER_ID, node.data)


@dataclass(frozen=True, slots=True)
class BrokerId:
    """A broker's id. A new id is taken only by `keep`: a failed start uses up none."""

    number: int
    is_new: bool = False

    async def keep(self, coordination: Coordination) -> None:
        """The log directories have the id now: no other broker may get it."""
        if self.is_new:
            await coordination.set(paths.BROKER_SEQUENCE, b"")


async def broker_id_of(config: BrokerConfig, coordination: Coordination, disk: Disk) -> BrokerId:
    """The configured id, else the one in the log directories, else the next unused one. A broker that is alone (its
    tree is embedded) first looks which broker has the tree's topics: that one is meant."""
    if config["broker.id"] >= 0:
        return BrokerId(int(config["broker.id"]))
    for directory in config.log_dirs:
        known = MetaProperties.read(disk, directory / names.META_PROPERTIES)
        if known is not None and known.broker_id is not None:
            return BrokerId(known.broker_id)
    if config.zookeeper is not None:
        return BrokerId(int(config["reserved.broker.max.id"]) + await _next_in_sequence(coordination))
    former = list(brokers_of(await TopicNodes(coordination).read_all()))
    if len(former) == 1:
        _logger.warning(
            "no log directory has a %s, which names the broker; this one goes on as broker %d, whose topics are in the "
            "tree. Check that log.dirs names the right directories: %s",
            names.META_PROPERTIES,
            former[0],
            ", ".join(map(str, config.log_dirs)),
        )
        return BrokerId(former[0])
    if former:
        owners = ", ".join(map(str, former))
        reason = f"it is missing, and topics are on brokers {owners}, so it is unknown which of them this is"
        path = config.log_dirs[0] / names.META_PROPERTIES
        raise DataDirectoryError(path, f"{reason}. Restore the file from a backup, or set broker.id")
    sequence = await coordination.get(paths.BROKER_SEQUENCE)
    made_before = 0 if sequence is None else sequence.version
    return BrokerId(int(config["reserved.broker.max.id"]) + made_before + 1, is_new=True)


async def _next_in_sequence(coordination: Coordination) -> int:
    """Taken at once, because another broker may start at the same time. If an answer is lost, a number is skipped."""
    while True:
        with suppress(ConnectionLossError):
            return await coordination.set(paths.BROKER_SEQUENCE, b"")
