"""`ottla configs`: the configuration of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.output import note, show_json, show_rows
from ottla.cli.session import Bootstrap, CommandError, Json, with_cluster
from ottla.cli.topics import parse_assignments

if TYPE_CHECKING:
    from ottla.client.admin import ConfigValue, Resource
    from ottla.client.cluster import Cluster

app = typer.Typer(no_args_is_help=True, help="Look at and change the configs of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The configs of this topic.")]
Broker = Annotated[int | None, typer.Option("--broker", metavar="ID", help="The configs of this broker.")]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="What holds for all brokers that have no value of their own.")
]


@app.command(epilog="Example: ottla configs describe --topic orders --all")
def describe(
    context: typer.Context,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those with default values as well.")] = False,
    synonyms: Annotated[
        bool, typer.Option("--synonyms", help="Where else a value could come from, if it were not set here.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show configs that are set; with --all every config there is."""
    resource = _resource(topic, broker, broker_defaults)

    async def work(cluster: Cluster) -> list[ConfigValue]:
        from ottla.client.admin import Admin
        from ottla.client.errors import RefusedError

        found = (await Admin(cluster).describe_configs([resource]))[resource]
        if isinstance(found, RefusedError):
            raise found
        return found

    values = with_cluster(context, bootstrap, work)
    shown = [value for value in values if everything or _is_set(value, resource)]
    if as_json:
        show_json([_json(value) for value in shown])
        return
    columns = ["config", "value", "from"] + (["synonyms"] if synonyms else [])
    rows = [
        (value.name, _text(value), _source(value.source), *([_synonyms(value)] if synonyms else [])) for value in shown
    ]
    show_rows(columns, rows)
    if not shown:
        note(f"Nothing is set for {resource}; --all shows the defaults.")


@app.command(
    "set", epilog="Example: ottla configs set --topic orders retention.ms=86400000 cleanup.policy=compact,delete"
)
def set_configs(
    context: typer.Context,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Set configs; they hold at once."""
    _alter(context, bootstrap, _resource(topic, broker, broker_defaults), {**parse_assignments(assignments)})


@app.command(epilog="Example: ottla configs unset --topic orders retention.ms")
def unset(
    context: typer.Context,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Put configs back to what they are by default."""
    _alter(context, bootstrap, _resource(topic, broker, broker_defaults), dict.fromkeys(keys))


def _alter(context: typer.Context, bootstrap: str | None, resource: Resource, changes: dict[str, str | None]) -> None:
    async def work(cluster: Cluster) -> None:
        from ottla.client.admin import Admin

        await Admin(cluster).alter_configs(resource, changes)

    with_cluster(context, bootstrap, work)
    note(f"Changed {', '.join(changes)} of {resource}.")


def _resource(topic: str | None, broker: int | None, broker_defaults: bool) -> Resource:
    from ottla.client.admin import Resource, ResourceType

    if (topic is not None) + (broker is not None) + broker_defaults != 1:
        raise CommandError("say whose configs: --topic TOPIC, --broker ID or --broker-defaults, one of them")
    if topic is not None:
        return Resource(ResourceType.TOPIC, topic)
    return Resource(ResourceType.BROKER, "" if broker is None else str(broker))


def _is_set(value: ConfigValue, resource: Resource) -> bool:
    """Whether someone gave it a value: for a topic, on that topic."""
    from ottla.client.admin import ConfigSource, ResourceType

    if resource.kind is ResourceType.TOPIC:
        return value.source is ConfigSource.TOPIC
    return value.source is not ConfigSource.DEFAULT


def _text(value: ConfigValue) -> str | None:
    return "(hidden)" if value.is_sensitive else value.value


def _source(source: Any) -> str:
    return str(source.name).lower().replace("_", " ")


def _synonyms(value: ConfigValue) -> str:
    return ", ".join(f"{name}={text} ({_source(source)})" for name, text, source in value.synonyms)


def _json(value: ConfigValue) -> dict[str, Any]:
    return {
        "config": value.name,
        "value": value.value,
        "source": value.source.name,
        "read_only": value.is_read_only,
        "sensitive": value.is_sensitive,
        "synonyms": [{"config": name, "value": text, "source": source.name} for name, text, source in value.synonyms],
    }
