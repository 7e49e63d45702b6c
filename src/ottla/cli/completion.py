"""Shell completion for the names of topics and groups, and for transactional ids. Names of profiles: see `profiles`.

Nothing here may fail or take long: if a cluster does not answer at once, there are no completions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import typer  # at run time as well: typer reads the annotations of these functions

if TYPE_CHECKING:
    from ottla.cli.session import Settings
    from ottla.client.administer import AsyncAdmin

_PATIENCE_S: Final = 2.0


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    async def names(admin: AsyncAdmin) -> list[str]:
        return [topic.name for topic in await admin.list_topics(include_internal=incomplete.startswith("_"))]

    return _complete(context, incomplete, names)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    async def names(admin: AsyncAdmin) -> list[str]:
        return [group.group_id for group in await admin.list_groups()]

    return _complete(context, incomplete, names)


def complete_transactional_ids(context: typer.Context, incomplete: str) -> list[str]:
    async def names(admin: AsyncAdmin) -> list[str]:
        return [one.transactional_id for one in await admin.list_transactions()]

    return _complete(context, incomplete, names)


def _complete(
    context: typer.Context, incomplete: str, names: Callable[[AsyncAdmin], Awaitable[list[str]]]
) -> list[str]:
    try:
        found = asyncio.run(_ask(_settings(context), names))
    except (Exception, KeyboardInterrupt):  # completion must never print an error
        return []
    return sorted(name for name in found if name.startswith(incomplete))


async def _ask(settings: Settings, names: Callable[[AsyncAdmin], Awaitable[list[str]]]) -> list[str]:
    from ottla.cli.session import reach
    from ottla.client.administer import AsyncAdmin
    from ottla.client.config import AdminConfig

    given = settings.client_settings(AdminConfig, {})
    async with asyncio.timeout(_PATIENCE_S):
        await reach(given)
        async with AsyncAdmin(given) as admin:
            return await names(admin)


def _settings(context: typer.Context) -> Settings:
    """The command has not run yet: what the user typed is in the parameters of the contexts, outermost first."""
    from ottla.cli.session import CLUSTER_OPTIONS, Settings

    settings = Settings()
    contexts: list[Any] = [context]
    while contexts[-1].parent is not None:
        contexts.append(contexts[-1].parent)
    for one in reversed(contexts):
        settings.choose(**{name: one.params.get(name) for name in CLUSTER_OPTIONS})
    return settings
