"""How a broker takes part in its cluster: alone (`lone_member`), or among others (`cluster_member`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.base.ids import Uuid
from ottla.broker.configs.listeners import Listener
from ottla.broker.observability.cluster_numbers import ClusterNumbers


class Membership(Protocol):
    """The steps of a broker's start and stop in which the two differ, in order."""

    async def load(self) -> Mapping[str, Uuid]:
        """Reads the cluster's topics, before the logs are opened. Returns the ids of those that are known."""
        ...

    async def opened(self) -> None:
        """The logs are open, and `Broker.replicas` is there."""
        ...

    async def join(self, listeners: Sequence[Listener]) -> None:
        """All parts of the broker are there, and its ports are bound: registers it."""
        ...

    async def serve(self) -> None:
        """The broker accepts connections."""
        ...

    def topic_config_changed(self, name: str) -> None:
        """What a topic sets itself has changed."""
        ...

    def broker_config_changed(self, keys: frozenset[str]) -> None:
        """Configs of this broker have changed."""
        ...

    def numbers(self) -> ClusterNumbers:
        """For metrics. May be called in any thread."""
        ...

    async def leave(self) -> None:
        """The broker is about to stop, and still serves: lets others take over."""
        ...

    async def stop(self) -> None:
        """No request is started any more; handlers may still run. Ends what changes roles."""
        ...

    async def close(self) -> None:
        """No handler runs any more; the logs are still open. Idempotent, also after a start that failed."""
        ...
