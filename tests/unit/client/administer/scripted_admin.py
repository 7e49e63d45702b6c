"""An admin of a scripted broker, and a limit to how long it may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.client.administer import AsyncAdmin
from support.clients.scripted_broker import ScriptedBroker


def admin_of(broker: ScriptedBroker, timeout_ms: int = 5_000) -> AsyncAdmin:
    """One that tries again soon."""
    return AsyncAdmin(
        bootstrap_servers=broker.bootstrap,
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=min(timeout_ms, 5_000),
        retry_backoff_ms=1,
        retry_backoff_max_ms=2,
    )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(limited())
