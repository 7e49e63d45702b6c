"""What commands share: the options of the whole command line, and an admin of the cluster they name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"

PATIENCE_MS: Final = 20_000
"""How long a person waits for something that may yet succeed."""

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Where to reach the cluster; the variable OTTLA_BOOTSTRAP does as well.",
        show_default=DEFAULT_BOOTSTRAP,
    ),
]
"""May stand before the command or behind it."""

Json = Annotated[bool, typer.Option("--json", help="JSON for programs, in place of a table for people.")]


@dataclass(slots=True)
class Settings:
    """What was said before the command's name."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    debug: bool = False


class CommandError(Exception):
    """Something that the user has to know, in a sentence or two. Ends the command with exit code 1."""


def settings_of(context: typer.Context) -> Settings:
    settings = context.obj
    return settings if isinstance(settings, Settings) else Settings()


def client_settings(context: typer.Context, bootstrap: str | None) -> dict[str, object]:
    """What a client is made with to reach the cluster that the options name."""
    from ottla.net.client_connection import parse_addresses  # not before a command needs it: help must be quick

    try:
        addresses = parse_addresses(bootstrap or settings_of(context).bootstrap)
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from None
    if not addresses:
        reason = "no address of a broker is given: write host:port, for instance localhost:9092"
        raise CommandError(f"--bootstrap-server: {reason}")
    return {"bootstrap.servers": addresses, "client.id": "ottla-cli"}


async def reach(settings: Mapping[str, Any]) -> None:
    """Raises if no broker answers right now. Clients try for as long as their time-outs say, because a broker may be
    starting; whoever types a command wants to know at once."""
    from ottla.client.cluster import Cluster

    async with Cluster(settings["bootstrap.servers"]) as cluster:
        await cluster.any_connection()


def with_admin(context: typer.Context, bootstrap: str | None, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Runs the work on the cluster that the options name; all connections are closed when it is done or interrupted."""
    settings = client_settings(context, bootstrap)

    async def connected() -> T:
        from ottla.client.administer import AsyncAdmin

        await reach(settings)
        async with AsyncAdmin(settings, default_api_timeout_ms=PATIENCE_MS) as admin:
            return await work(admin)

    return asyncio.run(connected())
