"""A broker's identity: its cluster, its id, and its registration."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.base.config import ConfigError
from ottla.base.coordination import Coordination, Create, Delete, NodeExistsError
from ottla.base.disk import Disk
from ottla.base.ids import format_uuid, random_uuid
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.listeners import Listener
from ottla.broker.startup.data_directory import DataDirectoryError, brokers_of
from ottla.controller.topic_nodes import TopicNodes
from ottla.log import names
from ottla.log.checkpoints import MetaProperties
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint, decode_cluster_id, encode_cluster_id

_logger = logging.getLogger(__name__)


async def cluster_id_of(coordination: Coordination) -> str:
    """The cluster's id; the first broker creates it."""
    node = await coordination.get(paths.CLUSTER_ID)
    if node is None:
        try:
            cluster_id = format_uuid(random_uuid())
            await coordination.create(paths.CLUSTER_ID, encode_cluster_id(cluster_id), parents=True)
            return cluster_id
        except NodeExistsError:
            node = await coordination.get(paths.CLUSTER_ID)
    return decode_cluster_id(paths.CLUSTER_ID, node.data if node is not None else b"")


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
    """The configured id, else the one in the log directories, else the one that has the tree's topics, else the next
    unused one."""
    if config["broker.id"] >= 0:
        return BrokerId(int(config["broker.id"]))
    for directory in config.log_dirs:
        known = MetaProperties.read(disk, directory / names.META_PROPERTIES)
        if known is not None and known.broker_id is not None:
            return BrokerId(known.broker_id)
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


async def register(coordination: Coordination, broker_id: int, listeners: Iterable[Listener], rack: str | None) -> None:
    """Tells the cluster that the broker is there."""
    registration = BrokerRegistration(
        endpoints=tuple(Endpoint(each.name, each.protocol, each.host, each.port) for each in listeners),
        rack=rack,
        timestamp_ms=time.time_ns() // 1_000_000,
    )
    path = paths.broker(broker_id)
    create = Create(path, registration.encode(), ephemeral=True)
    found = await coordination.get(path)
    if found is None:
        await coordination.transact([create])
    elif found.owner in (0, coordination.session_id):  # left by a version whose registrations were not ephemeral
        await coordination.transact([Delete(path, found.version), create])
    else:
        reason = f"another running broker is registered with the id {broker_id}; stop it, or choose another id"
        raise ConfigError("broker.id", reason)
