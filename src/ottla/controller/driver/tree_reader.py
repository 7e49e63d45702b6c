"""Reads what a new controller has to know, with few round trips however much there is. Watches are set by the reads."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.base.coordination import Coordination, Watch
from ottla.controller.seams import LiveBroker
from ottla.controller.topic_names import fault_of_name
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import BrokerRegistration, TopicAssignment

_logger = logging.getLogger(__name__)


async def read_brokers(
    tree: Coordination, on_children: Watch | None = None, on_node: Watch | None = None
) -> dict[int, LiveBroker]:
    """All registered brokers by id. Nodes that cannot be understood are left out, and logged."""
    ids = [int(name) for name in await tree.children(paths.BROKER_IDS, on_children) if name.isdigit()]
    return await read_some_brokers(tree, sorted(ids), on_node)


async def read_some_brokers(
    tree: Coordination, broker_ids: Sequence[int], on_node: Watch | None = None
) -> dict[int, LiveBroker]:
    found = {}
    nodes = await tree.get_many([paths.broker(broker_id) for broker_id in broker_ids], on_node)
    for broker_id, node in zip(broker_ids, nodes, strict=True):
        if node is None:
            continue
        try:
            registration = BrokerRegistration.decode(paths.broker(broker_id), node.data)
        except ZnodeError as error:
            _logger.error("ignoring broker %d: %s", broker_id, error)
            continue
        found[broker_id] = LiveBroker(broker_id, node.created_zxid, registration, node.created_ms)
    return found


async def read_topics(
    tree: Coordination, names: Sequence[str], on_node: Watch | None = None
) -> dict[str, TopicAssignment]:
    """The assignments of topics. Nodes that are gone or cannot be understood are left out, and so are names that
    another program should not have written: one that is no file name would look like a failed disk on every broker."""
    found = {}
    nodes = await tree.get_many([paths.topic(name) for name in names], on_node)
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        fault = fault_of_name(name)
        if fault is not None:
            _logger.error("ignoring a topic: %s", fault)
            continue
        try:
            found[name] = TopicAssignment.decode(paths.topic(name), node.data)
        except ZnodeError as error:
            _logger.error("ignoring topic %s: %s", name, error)
    return found
