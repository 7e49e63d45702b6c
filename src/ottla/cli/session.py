"""What commands share: the global options, and an admin client for the cluster they name.

The cluster and the client configs are looked up in this order: the command line (`-X`, `-b`, `--profile`), the
environment (OTTLA_BOOTSTRAP, OTTLA_PROFILE), the default profile of the config file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from ottla.cli.profiles import ProfileError, Values, complete_profiles, read_profiles

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin
    from ottla.client.config import CommonConfig

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP"
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"
BOOTSTRAP_KEY: Final = "bootstrap.servers"

PATIENCE_MS: Final = 20_000
"""How long a command keeps retrying before it fails."""

_HINT_PATIENCE_S: Final = 2.0

CLUSTER_OPTIONS: Final[dict[str, Any]] = {
    "bootstrap": Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT,…",
            help=f"Connect to these brokers. Environment: {BOOTSTRAP_VARIABLE}.",
            show_default=DEFAULT_BOOTSTRAP,
        ),
    ],
    "client_config": Annotated[
        list[str] | None,
        typer.Option(
            "--client-config",
            "-X",
            metavar="KEY=VALUE",
            help="Set a client config, for example -X request.timeout.ms=60000. Repeatable.",
            show_default=False,
        ),
    ],
    "profile": Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help=f"Use the client configs of this profile in the config file. Environment: {PROFILE_VARIABLE}.",
            show_default=False,
            autocompletion=complete_profiles,
        ),
    ],
}
"""Can be given before or after the subcommand; the one after it takes precedence."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class CommandError(Exception):
    """An error to show to the user in one or two sentences. Ends the command with exit code 1."""


@dataclass(slots=True)
class Settings:
    """The values of the global options."""

    bootstrap: str | None = None
    profile: str | None = None
    client_config: dict[str, str] = field(default_factory=dict)
    debug: bool = False

    def choose(self, *, bootstrap: str | None, client_config: Iterable[str] | None, profile: str | None) -> None:
        """Stores the cluster options."""
        self.bootstrap = bootstrap or self.bootstrap
        self.profile = profile or self.profile
        self.client_config |= parse_assignments(client_config or [])

    def named_bootstrap(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The bootstrap servers from the command line, the environment or the config file; None if none are set."""
        named = self.client_config.get(BOOTSTRAP_KEY) or self.bootstrap
        if named:
            return named
        if self.profile and (of_profile := self._profile_values(environment).get(BOOTSTRAP_KEY)):
            return str(of_profile)
        if from_environment := environment.get(BOOTSTRAP_VARIABLE):
            return from_environment
        of_default = self._profile_values(environment).get(BOOTSTRAP_KEY)
        return None if of_default is None else str(of_default)

    def client_settings(
        self, kind: type[CommonConfig], own: Mapping[str, object], environment: Mapping[str, str] = os.environ
    ) -> dict[str, Any]:
        """The configs of a client. `own` are the defaults of the command; the user's configs override them.

        A profile is shared by all client types, so a client takes from it only the keys that exist for its type in
        Kafka. These include keys that Ottla does not support, such as security.protocol; the client rejects them.
        """
        profile = self._profile_values(environment)
        _check_known(profile, self.profile or environment.get(PROFILE_VARIABLE) or "(default)")
        given: dict[str, Any] = {"client.id": "ottla-cli", **own}
        given |= {key: value for key, value in profile.items() if _has_key(kind, key)}
        given |= self.client_config
        given[BOOTSTRAP_KEY] = _addresses(self.named_bootstrap(environment) or DEFAULT_BOOTSTRAP)
        kind.parse(given)  # report a wrong key before connecting
        return given

    def _profile_values(self, environment: Mapping[str, str]) -> Values:
        try:
            return read_profiles(environment).get(self.profile or environment.get(PROFILE_VARIABLE) or None)
        except ProfileError as error:
            raise CommandError(str(error)) from None


def settings_of(context: typer.Context) -> Settings:
    settings = context.obj
    return settings if isinstance(settings, Settings) else Settings()


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Parses `KEY=VALUE` arguments."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{text!r} is not of the form KEY=VALUE")
        assignments[key.strip()] = value
    return assignments


def with_admin(context: typer.Context, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Runs `work` with an admin client for the chosen cluster, and closes all connections when it ends or is
    interrupted."""
    from ottla.client.config import AdminConfig  # imported late: help must be quick

    settings = settings_of(context).client_settings(AdminConfig, {"default.api.timeout.ms": PATIENCE_MS})

    async def connected() -> T:
        from ottla.client.administer import AsyncAdmin

        await reach(settings)
        async with AsyncAdmin(settings) as admin, topic_hints(lambda: _topic_names(admin)):
            return await work(admin)

    return asyncio.run(connected())


@asynccontextmanager
async def topic_hints(names: Callable[[], Awaitable[Iterable[str]]]) -> AsyncIterator[None]:
    """Adds the existing topics to the error of a command that names an unknown topic, for a suggestion."""
    from ottla.client.errors import OttlaError, UnknownTopicError

    try:
        yield
    except UnknownTopicError as error:
        with suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(_HINT_PATIENCE_S):
                error.known_topics = tuple(await names())  # type: ignore[attr-defined]
        raise


async def _topic_names(admin: AsyncAdmin) -> list[str]:
    return [topic.name for topic in await admin.list_topics(include_internal=True)]


def _addresses(bootstrap: str) -> object:
    from ottla.net.client_connection import parse_addresses

    try:
        addresses = parse_addresses(bootstrap)
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from None
    if not addresses:
        reason = "the list of brokers is empty; use host:port, for example localhost:9092"
        raise CommandError(f"--bootstrap-server: {reason}")
    return addresses


async def reach(settings: Mapping[str, Any]) -> None:
    """Raises if no broker can be reached now. Clients retry until their timeout, because a broker may be starting; a
    command reports it at once."""
    from ottla.client.cluster import Cluster

    async with Cluster(settings["bootstrap.servers"]) as cluster:
        await cluster.any_connection()


def _has_key(kind: type[CommonConfig], key: str) -> bool:
    from ottla.client.config_keys.elsewhere import OWNERS

    return key in kind.SCHEMA or kind.SCHEMA.kind in OWNERS.get(key, ())


def _check_known(values: Values, profile: str) -> None:
    """Rejects a key that no client has."""
    from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
    from ottla.client.config_keys.elsewhere import OWNERS

    schemas = PRODUCER_CONFIG, CONSUMER_CONFIG, ADMIN_CONFIG
    for key in values:
        if key in OWNERS or any(key in schema for schema in schemas):
            continue
        nearest = next((found for schema in schemas if (found := schema.nearest(key))), None)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise CommandError(f"profile {profile}: unknown client config {key!r}{hint}")
