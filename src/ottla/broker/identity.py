"""Who this broker is: the cluster it belongs to, its id in it, and where clients find it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ottla.base.coordination import Coordination, NodeExistsError
from ottla.base.disk import Disk
from ottla.base.ids import format_uuid, random_uuid
from ottla.broker.config import BrokerConfig
from ottla.broker.listeners import Listener
from ottla.log import names
from ottla.log.checkpoints import MetaProperties
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint, decode_cluster_id, encode_cluster_id


async def cluster_id_of(coordination: Coordination) -> str:
    """The cluster's id; the first broker to ask gives it one."""
    node = await coordination.get(paths.CLUSTER_ID)
    if node is None:
        try:
            cluster_id = format_uuid(random_uuid())
            await coordination.create(paths.CLUSTER_ID, encode_cluster_id(cluster_id), parents=True)
            return cluster_id
        except NodeExistsError:
            node = await coordination.get(paths.CLUSTER_ID)
    return decode_cluster_id(paths.CLUSTER_ID, node.data if node is not None else b"")


async def broker_id_of(config: BrokerConfig, coordination: Coordination, disk: Disk) -> int:
    """The id that is set, else the one that the log directories were given, else the next that no broker has."""
    if config["broker.id"] >= 0:
        return int(config["broker.id"])
    for directory in config.log_dirs:
        known = MetaProperties.read(disk, directory / names.META_PROPERTIES)
        if known is not None and known.broker_id is not None:
            return known.broker_id
    return int(config["reserved.broker.max.id"]) + await coordination.set(paths.BROKER_SEQUENCE, b"")


async def register(coordination: Coordination, broker_id: int, listeners: Iterable[Listener], rack: str | None) -> None:
    """Tells the cluster that the broker is there."""
    registration = BrokerRegistration(
        endpoints=tuple(Endpoint(each.name, each.protocol, each.host, each.port) for each in listeners),
        rack=rack,
        timestamp_ms=time.time_ns() // 1_000_000,
    )
    path = paths.broker(broker_id)
    try:
        await coordination.create(path, registration.encode(), parents=True)
    except NodeExistsError:  # of a run that ended without a word
        await coordination.set(path, registration.encode())
