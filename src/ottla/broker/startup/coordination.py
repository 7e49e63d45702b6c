"""Opens the coordination tree: the embedded one of a broker that is alone, or a cluster's ZooKeeper."""

from __future__ import annotations

import logging

from ottla.base.clock import Clock
from ottla.base.config import ConfigError
from ottla.base.coordination import Coordination, CoordinationError
from ottla.base.disk import Disk
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.cluster_settings import ClusterSettings
from ottla.broker.startup.data_directory import (
    DataDirectoryError,
    check_access,
    check_log_directories,
    place_of_tree,
)
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.node_json import ZnodeError

_logger = logging.getLogger(__name__)


async def open_coordination(config: BrokerConfig, disk: Disk, clock: Clock) -> LocalTree | ZooKeeperTree:
    """Raises `DataDirectoryError` or `TreeFileError` for the embedded tree, `ConfigError` if ZooKeeper cannot be used.
    A chroot that does not exist is created."""
    if config.zookeeper is None:
        return await _open_embedded(config, disk, clock)
    check_log_directories(config.log_dirs)
    settings = ClusterSettings.of(config)
    try:
        tree = await ZooKeeperTree.open(
            str(config.zookeeper), settings.session_timeout_ms, settings.zookeeper_connect_timeout_ms / 1000
        )
    except (ConnectionError, CoordinationError) as error:
        raise ConfigError("zookeeper.connect", str(error)) from error
    granted_ms = tree.session.granted_timeout_ms
    if granted_ms != settings.session_timeout_ms:
        _logger.info(
            "ZooKeeper grants a session timeout of %d ms instead of %d ms", granted_ms, settings.session_timeout_ms
        )
    return tree


async def _open_embedded(config: BrokerConfig, disk: Disk, clock: Clock) -> LocalTree:
    check_access(config.tree_path, config.log_dirs)
    tree_path = place_of_tree(config, disk)
    if tree_path != config.tree_path:
        _logger.info("the coordination tree is %s", tree_path)
        check_access(tree_path, config.log_dirs)
    return await LocalTree.open(tree_path, clock)


def unusable(tree: Coordination, error: ZnodeError) -> Exception:
    """What to tell when a node in the tree cannot be read."""
    if isinstance(tree, LocalTree):
        return DataDirectoryError(tree.path, f"it cannot be used: {error}; restore it from a backup")
    return ConfigError("zookeeper.connect", f"a node in ZooKeeper cannot be read: {error}")
