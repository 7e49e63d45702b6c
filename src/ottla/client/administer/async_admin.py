"""`AsyncAdmin`: the asyncio admin client."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from ottla.client.administer.brokers import BrokersArea
from ottla.client.administer.configs import ConfigsArea
from ottla.client.administer.group_offsets import GroupOffsetsArea
from ottla.client.administer.groups import GroupsArea
from ottla.client.administer.log_dirs import LogDirsArea
from ottla.client.administer.transactions import TransactionsArea
from ottla.client.arguments import checks_arguments
from ottla.client.cluster import Cluster
from ottla.client.config import AdminConfig
from ottla.client.config_keywords import AdminKeywords


@checks_arguments()
class AsyncAdmin(TransactionsArea, ConfigsArea, LogDirsArea, BrokersArea, GroupsArea, GroupOffsetsArea):
    """Use it as an async context manager, or call `close`: it holds connections. Belongs to one event loop.

    Configs have Kafka's names in a mapping (`default.api.timeout.ms`), or Python's as keyword arguments
    (`default_api_timeout_ms`). How failures of single items are reported is described in `ottla.client.administer`.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: Unpack[AdminKeywords]) -> None:
        config = AdminConfig.parse(settings, keywords)
        super().__init__(Cluster(config), config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; pending requests fail. Idempotent."""
        await self._cluster.close()
