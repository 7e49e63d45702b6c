"""`ottla configs`: the configuration of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.config_names import check_known
from ottla.cli.output import note, show_json, show_rows
from ottla.cli.session import CommandError, Json, parse_assignments, with_admin

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, ConfigEntry, ConfigResource

app = Commands(help="Show and change configs of topics, brokers and groups.")

Topic = Annotated[
    str | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="Use the configs of this topic.", autocompletion=complete_topics
    ),
]
Broker = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Use the configs of this broker.")]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="Use the cluster-wide broker defaults.")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", metavar="GROUP", help="Use the configs of this group.", autocompletion=complete_groups
    ),
]


@app.command(epilog="Example: ottla configs describe --topic orders --all")
@on_cluster
def describe(
    context: typer.Context,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    group: Group = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include configs with their default value.")] = False,
    synonyms: Annotated[bool, typer.Option("--synonyms", help="Show where each value can come from.")] = False,
    as_json: Json = False,
) -> None:
    """Show the configs that are set, or all configs with --all."""
    resource = _resource(topic, broker, broker_defaults, group)

    async def work(admin: AsyncAdmin) -> dict[str, ConfigEntry]:
        return (await admin.describe_configs([resource], include_synonyms=True))[resource]

    values = with_admin(context, work)
    shown = [value for value in values.values() if everything or _is_set(value, resource)]
    if as_json:
        show_json([_json(value) for value in shown])
        return
    columns = ["config", "value", "from"] + (["synonyms"] if synonyms else [])
    rows = [
        (value.name, _text(value), _source(value.source), *([_synonyms(value)] if synonyms else [])) for value in shown
    ]
    if rows:
        show_rows(columns, rows)
    else:
        note(f"No configs are set for {resource}. Use --all to show the defaults.")


@app.command(
    "set", epilog="Example: ottla configs set --topic orders retention.ms=86400000 cleanup.policy=compact,delete"
)
@on_cluster
def set_configs(
    context: typer.Context,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    group: Group = None,
) -> None:
    """Set configs. They take effect immediately."""
    _alter(context, _resource(topic, broker, broker_defaults, group), {**parse_assignments(assignments)})


@app.command(epilog="Example: ottla configs unset --topic orders retention.ms")
@on_cluster
def unset(
    context: typer.Context,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    group: Group = None,
) -> None:
    """Reset configs to their defaults."""
    _alter(context, _resource(topic, broker, broker_defaults, group), dict.fromkeys(keys))


def _alter(context: typer.Context, resource: ConfigResource, changes: dict[str, str | None]) -> None:
    async def work(admin: AsyncAdmin) -> None:
        await check_known(admin, resource, (name for name, value in changes.items() if value is None))
        await admin.incremental_alter_configs({resource: changes})

    with_admin(context, work)
    note(f"Changed {', '.join(changes)} of {resource}.")


def _resource(topic: str | None, broker: int | None, broker_defaults: bool, group: str | None) -> ConfigResource:
    from ottla.client.administer import ConfigResource

    if (topic is not None) + (broker is not None) + broker_defaults + (group is not None) != 1:
        raise CommandError("give exactly one of --topic, --broker, --broker-defaults and --group")
    if group is not None:
        return ConfigResource.group(group)
    return ConfigResource.topic(topic) if topic is not None else ConfigResource.broker(broker)


def _is_set(value: ConfigEntry, resource: ConfigResource) -> bool:
    """Whether the value is set explicitly; for a topic or a group, on that resource."""
    from ottla.client.administer import ConfigSource, ResourceType

    if resource.kind is ResourceType.TOPIC:
        return value.source is ConfigSource.TOPIC
    if resource.kind is ResourceType.GROUP:
        return value.source is ConfigSource.GROUP
    return value.source is not ConfigSource.DEFAULT


def _text(value: ConfigEntry) -> str | None:
    return "(hidden)" if value.is_sensitive else value.value


def _source(source: Any) -> str:
    return str(source.name).lower().replace("_", " ")


def _synonyms(value: ConfigEntry) -> str:
    return ", ".join(f"{name}={text} ({_source(source)})" for name, text, source in value.synonyms)


def _json(value: ConfigEntry) -> dict[str, Any]:
    return {
        "config": value.name,
        "value": value.value,
        "source": value.source.name,
        "read_only": value.is_read_only,
        "sensitive": value.is_sensitive,
        "synonyms": [{"config": name, "value": text, "source": source.name} for name, text, source in value.synonyms],
    }
