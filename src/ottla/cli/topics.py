"""`ottla topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, format_uuid
from ottla.cli.output import is_terminal, json_rows, note, show_json, show_rows, size_text
from ottla.cli.session import Bootstrap, CommandError, Json, with_cluster

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.cluster import Cluster
    from ottla.client.errors import RefusedError
    from ottla.client.metadata import TopicInfo

app = typer.Typer(no_args_is_help=True, help="Create, look at, change and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One topic or several.", show_default=False)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of the topic. Can be given several times."),
]

_PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "in_sync", "first_offset", "next_offset", "bytes")


@app.command(
    epilog="Example: ottla topics create orders --partitions 6 --config retention.ms=86400000",
)
def create(
    context: typer.Context,
    names: Names,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; the broker's default if not given.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="How many copies; the broker's default if not given."),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="No error for a topic that is there.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create topics."""
    configs = parse_assignments(config or [])

    async def work(cluster: Cluster) -> None:
        from ottla.client.admin import BROKERS_DEFAULT, Admin, TopicSpec
        from ottla.client.errors import RefusedError

        specs = [
            TopicSpec(name, partitions or BROKERS_DEFAULT, replication_factor or BROKERS_DEFAULT, configs)
            for name in names
        ]
        outcomes = await Admin(cluster).create_topics(specs)
        failures = []
        for name, outcome in outcomes.items():
            if not isinstance(outcome, RefusedError):
                counts = f" with {outcome.partitions} partitions" if outcome.partitions > 0 else ""
                note(f"Created topic {name}{counts}.")
            elif if_not_exists and outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"Topic {name} is there already.")
            else:
                failures.append(outcome)
        raise_all(failures)

    with_cluster(context, bootstrap, work)


@app.command("list")
def list_topics(
    context: typer.Context,
    internal: Annotated[bool, typer.Option("--internal", help="Also topics that the broker keeps for itself.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List the topics. In a pipe: their names, one a line."""

    async def work(cluster: Cluster) -> list[TopicInfo]:
        from ottla.client.admin import Admin

        return await Admin(cluster).list_topics()

    topics = [topic for topic in with_cluster(context, bootstrap, work) if internal or not topic.is_internal]
    columns = ("topic", "partitions", "replicas")
    rows = [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics]
    if as_json:
        show_json(json_rows(columns, rows))
    elif not is_terminal():
        for topic in topics:
            typer.echo(topic.name)
    elif rows:
        show_rows(columns, rows)
    else:
        note("There are no topics yet: `ottla topics create orders` makes one.")


@app.command(epilog="Example: ottla topics describe orders payments --json")
def describe(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]", help="All topics if none is named.", show_default=False)
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the partitions of topics: leaders, replicas, offsets, sizes."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        return await _describe(cluster, names or [])

    topics = with_cluster(context, bootstrap, work)
    if as_json:
        show_json(topics)
        return
    if not is_terminal():
        show_rows(_PARTITION_COLUMNS, (_partition_row(topic, one) for topic in topics for one in topic["partitions"]))
        return
    for topic in topics:
        configs = " ".join(f"{name}={value}" for name, value in topic["configs"].items())
        title = f"{topic['topic']}  id {topic['id'] or '-'}{f'  {configs}' if configs else ''}"
        rows = [_partition_row(topic, one)[1:] for one in topic["partitions"]]
        shown = [(*row[:-1], None if row[-1] is None else size_text(row[-1])) for row in rows]
        show_rows([name.replace("_", " ") for name in (*_PARTITION_COLUMNS[1:-1], "size")], shown, title=title)


@app.command(
    epilog="Example: ottla topics alter orders --partitions 12 --config retention.ms=3600000 --unset cleanup.policy"
)
def alter(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="How many in all. There can only be more, never fewer."),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="A config to be put back to its default.")
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Give a topic more partitions, or other configs.

    Keys are spread over all partitions: when there are more of them, a key's next records may go elsewhere.
    """
    changes: dict[str, str | None] = {**parse_assignments(config or []), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise CommandError("nothing to alter: give --partitions, --config or --unset")

    async def work(cluster: Cluster) -> None:
        from ottla.client.admin import Admin, Resource, ResourceType

        admin = Admin(cluster)
        if changes:
            await admin.alter_configs(Resource(ResourceType.TOPIC, name), changes)
            note(f"Changed {len(changes)} config{'s' if len(changes) > 1 else ''} of topic {name}.")
        if partitions is not None:
            outcomes = await admin.create_partitions({name: partitions})
            raise_all(failure for failure in outcomes.values() if failure)
            note(f"Topic {name} has {partitions} partitions now.")

    with_cluster(context, bootstrap, work)


@app.command(epilog="Example: ottla topics delete orders --if-exists")
def delete(
    context: typer.Context,
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error for a topic that is not there.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete topics, with all their records, for good."""

    async def work(cluster: Cluster) -> None:
        from ottla.client.admin import Admin

        failures = []
        for name, failure in (await Admin(cluster).delete_topics(names)).items():
            if failure is None:
                note(f"Deleted topic {name}.")
            elif if_exists and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                note(f"There is no topic {name}.")
            else:
                failures.append(failure)
        raise_all(failures)

    with_cluster(context, bootstrap, work)


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """The keys and values of `KEY=VALUE` arguments."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{text!r} is not KEY=VALUE")
        assignments[key.strip()] = value
    return assignments


def raise_all(failures: Iterable[RefusedError]) -> None:
    """One error that tells of all; nothing if there are none."""
    if texts := [str(failure) for failure in failures]:
        raise CommandError("\n".join(texts))


async def _describe(cluster: Cluster, names: list[str]) -> list[dict[str, Any]]:
    from ottla.base.ids import TopicPartition
    from ottla.client.admin import Admin, ConfigSource, Resource, ResourceType
    from ottla.client.errors import RefusedError
    from ottla.client.offsets import EARLIEST, LATEST, offsets_at
    from ottla.net.client_connection import UnsupportedApiError

    admin = Admin(cluster)
    topics = [await cluster.topic(name) for name in names] if names else await admin.list_topics()
    led = [
        TopicPartition(topic.name, one.index)
        for topic in topics
        for one in topic.partitions
        if one.leader_id in cluster.brokers
    ]
    first = await offsets_at(cluster, dict.fromkeys(led, EARLIEST))
    end = await offsets_at(cluster, dict.fromkeys(led, LATEST))
    try:
        sizes = await admin.sizes(topics)
    except UnsupportedApiError:
        sizes = {}
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    configs = await admin.describe_configs(resources) if resources else {}
    described = []
    for topic, resource in zip(topics, resources, strict=True):
        values = configs.get(resource, [])
        if isinstance(values, RefusedError):
            raise values
        own = {value.name: value.value for value in values if value.source is ConfigSource.TOPIC}
        described.append(_topic_row(topic, own, first, end, sizes))
    return described


def _topic_row(
    topic: TopicInfo,
    configs: Mapping[str, str | None],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    from ottla.base.ids import TopicPartition

    partitions = []
    for one in topic.partitions:
        name = TopicPartition(topic.name, one.index)
        partitions.append(
            {
                "partition": one.index,
                "leader": one.leader_id if one.leader_id >= 0 else None,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "first_offset": first.get(name),
                "next_offset": end.get(name),
                "bytes": sizes.get(name),
            }
        )
    topic_id = None if topic.topic_id == ZERO_UUID else format_uuid(topic.topic_id)
    return {"topic": topic.name, "id": topic_id, "configs": dict(configs), "partitions": partitions}


def _partition_row(topic: Mapping[str, Any], partition: Mapping[str, Any]) -> tuple[Any, ...]:
    return (topic["topic"], *(partition[column] for column in _PARTITION_COLUMNS[1:]))


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(one.replicas) for one in topic.partitions), default=0)
