"""Watches the broker that is the controller, on every other broker.

When its process is evidently gone (its connections end and new ones are refused), its session may still last many
seconds. Any broker then removes `/controller`, under a check of the epoch, and all run for election. If the evidence
was wrong, the old controller is refused by the tree, and resigns: that costs an election, and no data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from ottla.base.coordination import BadVersionError, Check, Coordination, Delete, NoNodeError
from ottla.controller.driver.tree_reader import read_some_brokers
from ottla.controller.seams import ControlLinks, LiveBroker
from ottla.wire.peer import Peer
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import ControllerRegistration

_logger = logging.getLogger(__name__)


class ControllerWatch:
    """`on_gone` is called on the loop with the controller whose process is gone."""

    def __init__(
        self, tree: Coordination, links: ControlLinks, broker_id: int, on_gone: Callable[[LiveBroker], None]
    ) -> None:
        self._tree = tree
        self._links = links
        self._broker_id = broker_id
        self._on_gone = on_gone
        self._watched: tuple[LiveBroker, Peer] | None = None
        self._elected_zxid = -1
        self.gone: dict[int, int] = {}
        """The last controller, if its process is gone, with the epoch of its registration: what the next one must
        know."""

    async def follow(self, controller_id: int, elected_zxid: int) -> None:
        """Another broker is the controller, elected in that transaction: watches it from now on."""
        if controller_id == self._broker_id:
            return
        broker = (await read_some_brokers(self._tree, [controller_id])).get(controller_id)
        if broker is None:
            return
        if elected_zxid != self._elected_zxid:
            self._elected_zxid = elected_zxid
            self.gone = {}  # even if it is the one before: it is there after all
        if self._watched is not None and self._watched[0] == broker:
            return
        self.close()
        peer = self._links.watch_controller(broker, lambda: self._silent(broker))
        self._watched = broker, peer

    def _silent(self, broker: LiveBroker) -> None:
        if self._watched is not None and self._watched[0] == broker:
            self.gone = {broker.broker_id: broker.epoch}
            self._on_gone(broker)

    def taken_over(self, brokers: Mapping[int, LiveBroker]) -> None:
        """This broker is the controller now. It goes on watching the one before, if that may still turn out gone."""
        if self.gone or (self._watched is not None and self._watched[0].broker_id not in brokers):
            self.close()

    def close(self) -> None:
        if self._watched is not None:
            self._watched[1].close()
            self._watched = None

    async def depose(self, broker: LiveBroker) -> None:
        """Removes `/controller` if it is still that broker's, in the same registration."""
        epoch = await self._tree.get(paths.CONTROLLER_EPOCH)
        node = await self._tree.get(paths.CONTROLLER)
        if epoch is None or node is None:
            return
        with suppress(ZnodeError):
            if ControllerRegistration.decode(paths.CONTROLLER, node.data).broker_id != broker.broker_id:
                return
        known = (await read_some_brokers(self._tree, [broker.broker_id])).get(broker.broker_id)
        if known is not None and known.epoch != broker.epoch:
            return  # it is back
        _logger.warning("broker %d is gone, and was the controller: running for election", broker.broker_id)
        with suppress(BadVersionError, NoNodeError):  # another broker was faster
            await self._tree.transact(
                [Check(paths.CONTROLLER_EPOCH, epoch.version), Delete(paths.CONTROLLER, node.version)]
            )
