"""All connections of this broker to other brokers, made by whoever needs them and closed here at the end.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from ottla.base.clock import SystemClock
from ottla.broker.links.broker_peer import BrokerPeer
from ottla.broker.links.controller_peer import ControllerPeer
from ottla.broker.links.held_link import HeldLink
from ottla.broker.links.own_peer import OwnBroker, OwnPeer
from ottla.broker.links.settings import LinkSettings
from ottla.controller.seams import LiveBroker
from ottla.net.client_connection import Address, ConnectionOptions
from ottla.wire.peer import Peer

_STARTED_AFTER_MS: Final = 30_000
"""A broker that registered longer ago has started."""


class BrokerLinks:
    """See the module; implements `ottla.controller.seams.ControlLinks`.

    `endpoint_of` and `controller_id` are set by the composition root.
    """

    def __init__(
        self,
        broker_id: int,
        inter_broker_listener: str,
        control_plane_listener: str | None,
        own: OwnBroker,
        settings: LinkSettings,
        loop: AbstractEventLoop,
    ) -> None:
        self.broker_id = broker_id
        self._listener = inter_broker_listener
        self._control_listener = control_plane_listener or inter_broker_listener
        self._own = own
        self._settings = settings
        self._loop = loop
        self.endpoint_of: Callable[[int], tuple[str, int] | None] = lambda _: None
        """A broker's address on the inter-broker listener, if it is known."""
        self.controller_id: Callable[[], int] = lambda: -1
        """The current controller, -1 for none."""
        self.now_ms: Callable[[], int] = SystemClock().now_ms
        self._open: WeakSet[BrokerPeer | HeldLink | OwnPeer | ControllerPeer] = WeakSet()

    # --- the controller's side ----------------------------------------------------------------------------------------

    def open(self, broker: LiveBroker, on_silent: Callable[[], None], on_answer: Callable[[], None]) -> Peer:
        """See `ControlLinks`."""
        if broker.broker_id == self.broker_id:
            return self._own_peer()
        link = HeldLink(
            f"broker {broker.broker_id}",
            address_of(broker, self._control_listener),
            self._settings.controlling(f"broker-{self.broker_id}-control"),
            on_silent=on_silent,
            on_answer=on_answer,
            may_be_starting=self._may_be_starting(broker),
        )
        self._open.add(link)
        return link

    # --- every broker's side ------------------------------------------------------------------------------------------

    def watch_controller(self, broker: LiveBroker | tuple[int, str, int], on_gone: Callable[[], None]) -> Peer:
        """Holds a connection to the controller until the returned peer is closed. `on_gone` is called on the loop when
        its process is evidently gone, by the same evidence as in `open`; again if it answered in between.

        The controller is given as it registered, or as id, host and port. Nothing is called for the own broker."""
        if isinstance(broker, LiveBroker):
            controller, address = broker.broker_id, address_of(broker, self._listener)
        else:
            controller, address = broker[0], Address(broker[1], broker[2])
        if controller == self.broker_id:
            return self._own_peer()
        link = HeldLink(
            f"the controller (broker {controller})",
            address,
            self._settings.controlling(f"broker-{self.broker_id}-watch"),
            on_silent=on_gone,
            may_be_starting=not isinstance(broker, LiveBroker) or self._may_be_starting(broker),
        )
        self._open.add(link)
        return link

    def controller_peer(self) -> ControllerPeer:
        """Follows the current controller; `PeerError` while there is none. One caller's requests stay in order."""
        peer = ControllerPeer(self.controller_id_now, self._peer_of_controller)
        self._open.add(peer)
        return peer

    def controller_changed(self) -> None:
        """To be called when `controller_id` changes: requests to the earlier controller fail."""
        for peer in list(self._open):
            if isinstance(peer, ControllerPeer):
                peer.controller_changed()

    def controller_id_now(self) -> int:
        return self.controller_id()

    def fetch_peer(self, broker_id: int) -> Peer:
        """A new connection for a follower's fetch loop. The address is looked up for each attempt to connect."""
        return self._peer(broker_id, self._settings.fetching(f"broker-{self.broker_id}-fetcher"))

    def coordinator_peer(self, broker_id: int) -> Peer:
        """A new connection for what coordinators and leaders ask each other about transactions."""
        return self._peer(broker_id, self._settings.controlling(f"broker-{self.broker_id}-transactions"))

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        for peer in list(self._open):
            peer.close()
        self._open.clear()
        await asyncio.sleep(0)  # the tasks that hold connections end

    def _may_be_starting(self, broker: LiveBroker) -> bool:
        return self.now_ms() - broker.registration.timestamp_ms < _STARTED_AFTER_MS

    def _peer_of_controller(self, broker_id: int) -> Peer:
        if broker_id == self.broker_id:
            return self._own_peer()
        return self._peer(broker_id, self._settings.controlling(f"broker-{self.broker_id}-to-controller"))

    def _peer(self, broker_id: int, options: ConnectionOptions) -> Peer:
        peer = BrokerPeer(f"broker {broker_id}", lambda: self._address(broker_id), options)
        self._open.add(peer)
        return peer

    def _own_peer(self) -> OwnPeer:
        peer = OwnPeer(self._own)
        self._open.add(peer)
        return peer

    def _address(self, broker_id: int) -> Address | None:
        found = self.endpoint_of(broker_id)
        return None if found is None else Address(*found)


def address_of(broker: LiveBroker, listener: str) -> Address | None:
    """Where the broker is reached on a listener; None if it has no such listener."""
    for endpoint in broker.registration.endpoints:
        if endpoint.listener == listener:
            return Address(endpoint.host, endpoint.port)
    return None
