"""What the controller needs from the broker that it runs in: connections to all brokers, its own included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.wire.peer import Peer
from ottla.zookeeper.znodes import BrokerRegistration


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker. `epoch` is the transaction that created its node: a restarted broker has a higher one."""

    broker_id: int
    epoch: int
    registration: BrokerRegistration
    registered_ms: int = 0
    """By ZooKeeper's clock, unlike the timestamp in the registration, which is by the broker's."""


class ControlLinks(Protocol):
    """Opens the connections on which the controller sends LeaderAndIsr, UpdateMetadata and StopReplica."""

    def open(self, broker: LiveBroker, on_silent: Callable[[], None], on_answer: Callable[[], None]) -> Peer:
        """`on_silent` is called on the loop when the broker's process is evidently gone: the connection ended, and new
        ones were refused for a while. A timeout is no evidence. `on_answer` is called when it answers again.

        The link to the own broker calls its handlers directly, without a socket."""
        ...

    def watch_controller(self, broker: LiveBroker, on_gone: Callable[[], None]) -> Peer:
        """Holds a connection to the broker that is the controller until the returned peer is closed. `on_gone` is
        called on the loop by the same evidence as `on_silent`."""
        ...
