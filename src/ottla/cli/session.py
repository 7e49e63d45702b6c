"""What commands share: the options of the whole command line, and a cluster to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"

_PATIENCE_S: Final = 20.0
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


def with_cluster(context: typer.Context, bootstrap: str | None, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Runs the work on the cluster that the options name; all connections are closed when it is done or interrupted."""
    from ottla.client.cluster import Cluster, ClusterOptions  # not before a command needs it: help must be quick

    addresses = bootstrap or settings_of(context).bootstrap

    async def connected() -> T:
        try:
            cluster = Cluster(addresses, ClusterOptions(api_timeout_s=_PATIENCE_S))
        except ValueError as error:
            raise CommandError(f"--bootstrap-server: {error}") from None
        async with cluster:
            return await work(cluster)

    return asyncio.run(connected())
