"""`ottla topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.error_codes import ErrorCode
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_topics
from ottla.cli.config_names import check_known
from ottla.cli.output import (
    confirm,
    counted,
    is_terminal,
    json_rows,
    note,
    show_json,
    show_listing,
    show_rows,
    size_text,
)
from ottla.cli.partition_names import described_topics
from ottla.cli.session import CommandError, Json, parse_assignments, with_admin

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.administer import AsyncAdmin, ListedOffset, Place, Reassignment, TopicDescription
    from ottla.client.errors import RefusedError

app = Commands(help="Create, list, describe, alter and delete topics.")

Names = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="One or more topics.", show_default=False, autocompletion=complete_topics),
]
NewNames = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.", show_default=False)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="Set a config of the topic. Repeatable."),
]

Internal = Annotated[bool, typer.Option("--internal", help="Include internal topics.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_PARTITION_COLUMNS = (
    *("topic", "partition", "leader", "replicas", "in_sync", "first_offset", "next_offset", "bytes"),
    *("offline", "adding", "removing"),
)
_ONLY_IF_ANY = frozenset({"offline", "adding", "removing"})
"""Columns that a table on a terminal has only if a partition has something there."""


@app.command(
    epilog="Example: ottla topics create orders --partitions 6 --config retention.ms=86400000",
)
@on_cluster
def create(
    context: typer.Context,
    names: NewNames,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Set the number of partitions (default: num.partitions of the broker)."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="Set the replication factor (default: default.replication.factor of the broker).",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
) -> None:
    """Create topics."""
    configs = parse_assignments(config or [])

    async def work(admin: AsyncAdmin) -> None:
        from ottla.client.administer import NewTopic, SomeRefusedError

        failures: dict[str, RefusedError] = {}
        try:
            created = await admin.create_topics(
                NewTopic(name, partitions, replication_factor, configs=configs) for name in names
            )
        except SomeRefusedError as error:
            created, failures = error.results, error.errors
        for name, topic in created.items():
            counts = f" with {counted(topic.partitions, 'partition')}" if topic.partitions else ""
            note(f"Created topic {name}{counts}.")
        for name, failure in list(failures.items()):
            if if_not_exists and failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"Topic {name} already exists.")
                del failures[name]
        raise_all(failures.values())

    with_admin(context, work)


@app.command("list")
@on_cluster
def list_topics(
    context: typer.Context,
    internal: Internal = False,
    as_json: Json = False,
) -> None:
    """List topics. In a pipe, print one name per line."""

    async def work(admin: AsyncAdmin) -> list[TopicDescription]:
        return await admin.list_topics(include_internal=internal)

    topics = with_admin(context, work)
    columns = ("topic", "partitions", "replicas")
    rows = [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics]
    empty = "There are no topics. Create one with `ottla topics create orders`."
    show_listing(columns, rows, as_json=as_json, empty=empty)


@app.command(epilog="Example: ottla topics describe orders payments --json")
@on_cluster
def describe(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="One or more topics (default: all).",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ] = None,
    internal: Internal = False,
    as_json: Json = False,
) -> None:
    """Show the partitions of topics with leader, replicas, offsets and size.

    Also shows replicas that are offline, and those that a reassignment is adding and removing.
    """

    async def work(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return await _describe(admin, names or [], include_internal=internal)

    topics = with_admin(context, work)
    if as_json:
        show_json(topics)
        return
    if not is_terminal():
        show_rows(_PARTITION_COLUMNS, (_partition_row(topic, one) for topic in topics for one in topic["partitions"]))
        return
    for topic in topics:
        configs = " ".join(f"{name}={value}" for name, value in topic["configs"].items())
        title = f"{topic['topic']}  id {topic['id'] or '-'}{f'  {configs}' if configs else ''}"
        _show_partitions(topic["partitions"], title)


@app.command(
    epilog="Example: ottla topics alter orders --partitions 12 --config retention.ms=3600000 --unset cleanup.policy"
)
@on_cluster
def alter(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=complete_topics),
    ],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Set the total number of partitions; it can only grow."),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Reset a config to its default. Repeatable.")
    ] = None,
) -> None:
    """Add partitions to a topic, or change its configs.

    The partition of a key depends on the number of partitions: after you add some, new records with an existing key may
    go to another partition.
    """
    changes: dict[str, str | None] = {**parse_assignments(config or []), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise CommandError("nothing to alter: give --partitions, --config or --unset")

    async def work(admin: AsyncAdmin) -> None:
        from ottla.client.administer import ConfigResource

        if changes:
            await check_known(admin, ConfigResource.topic(name), unset or [])
            await admin.incremental_alter_configs({ConfigResource.topic(name): changes})
            note(f"Changed {counted(len(changes), 'config')} of topic {name}.")
        if partitions is not None:
            await admin.create_partitions({name: partitions})
            note(f"Topic {name} now has {counted(partitions, 'partition')}.")

    with_admin(context, work)


@app.command(epilog="Example: ottla topics delete orders --if-exists")
@on_cluster
def delete(
    context: typer.Context,
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    yes: Yes = False,
) -> None:
    """Delete topics and all their records. This cannot be undone. Asks for confirmation on a terminal."""
    if not confirm(f"Delete {_listed(names)} and all records?", is_given=yes):
        raise CommandError("nothing was deleted")

    async def work(admin: AsyncAdmin) -> None:
        from ottla.client.administer import SomeRefusedError

        deleted: Iterable[str] = names
        failures: dict[str, RefusedError] = {}
        try:
            await admin.delete_topics(names)
        except SomeRefusedError as error:
            deleted, failures = error.results, error.errors
        for name in deleted:
            note(f"Deleted topic {name}.")
        for name, failure in list(failures.items()):
            if if_exists and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                note(f"Topic {name} does not exist.")
                del failures[name]
        raise_all(failures.values())

    with_admin(context, work)


@app.command(
    "delete-records",
    epilog="Example: ottla topics delete-records orders --before '7 days ago'",
)
@on_cluster
def delete_records(
    context: typer.Context,
    names: Names,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Delete records older than this: '7 days ago', 2026-03-01."),
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="Delete records before this offset.")
    ] = None,
    all_records: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-P", min=0, help="Delete only from this partition. Repeatable.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the oldest records of topics. This cannot be undone. The remaining records keep their offsets.

    Prints, for each partition, the number of offsets deleted and the new log start offset. Asks for confirmation on a
    terminal.
    """
    from ottla.cli.times import milliseconds, parse_time

    if (before is not None) + (before_offset is not None) + all_records != 1:
        raise CommandError("give exactly one of --before, --before-offset and --all")
    try:
        time = None if before is None else milliseconds(parse_time(before))
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def work(admin: AsyncAdmin) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        from ottla.base.ids import TopicPartition
        from ottla.client.administer import EARLIEST, LATEST, Place

        described = await described_topics(admin, names)
        for topic in described:
            for index in partitions or ():
                if index >= len(topic.partitions):
                    has = counted(len(topic.partitions), "partition")
                    raise CommandError(f"topic {topic.name} has no partition {index}: it has {has}, numbered from 0")
        chosen = [
            TopicPartition(topic.name, one.index)
            for topic in described
            for one in topic.partitions
            if not partitions or one.index in partitions
        ]
        first = {one: found.offset or 0 for one, found in (await _offsets(admin, chosen, EARLIEST)).items()}
        end = {one: found.offset or 0 for one, found in (await _offsets(admin, chosen, LATEST)).items()}
        wanted = dict(end)
        if before_offset is not None:
            for one in chosen:
                if before_offset > end[one]:
                    raise CommandError(
                        f"--before-offset {before_offset} is beyond the end of partition {one}, which is {end[one]}; "
                        "nothing was deleted. Choose partitions with --partition, or delete everything with --all"
                    )
            wanted = {one: max(before_offset, first[one]) for one in chosen}
        elif time is not None:
            found = await _offsets(admin, chosen, Place.at_time(time))
            wanted = {one: end[one] if at.offset is None else at.offset for one, at in found.items()}
        going = counted(sum(wanted[one] - first[one] for one in chosen), "record")
        if not confirm(f"Delete {going} of {_listed(names)}?", is_given=yes):
            raise CommandError("nothing was deleted")
        return first, await admin.delete_records(wanted)

    first, kept = with_admin(context, work)
    rows = [(*one, kept[one] - first[one], kept[one]) for one in sorted(kept)]
    columns = ("topic", "partition", "deleted", "first_offset")
    if as_json:
        show_json(json_rows(columns, rows))
        return
    show_rows([name.replace("_", " ") for name in columns] if is_terminal() else columns, rows)
    note(f"Deleted {counted(sum(row[2] for row in rows), 'record')}.")


def _listed(names: list[str]) -> str:
    return f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names)}"


def raise_all(failures: Iterable[RefusedError]) -> None:
    """Raises one error that describes all of them; does nothing if there are none."""
    if texts := [str(failure) for failure in failures]:
        raise CommandError("\n".join(texts))


async def _describe(admin: AsyncAdmin, names: list[str], *, include_internal: bool) -> list[dict[str, Any]]:
    from ottla.base.ids import TopicPartition
    from ottla.client.administer import EARLIEST, LATEST, ConfigResource, ConfigSource

    topics = await described_topics(admin, names, include_internal=include_internal)
    led = [
        TopicPartition(topic.name, one.index)
        for topic in topics
        for one in topic.partitions
        if one.leader_id is not None
    ]
    first = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(led, LATEST))
    sizes = await _sizes(admin, topics)
    moves = await _reassignments(admin, topics)
    resources = [ConfigResource.topic(topic.name) for topic in topics]
    configs = await admin.describe_configs(resources)
    return [
        _topic_row(
            topic,
            {entry.name: entry.value for entry in configs[resource].values() if entry.source is ConfigSource.TOPIC},
            {partition: found.offset for partition, found in first.items()},
            {partition: found.offset for partition, found in end.items()},
            sizes,
            moves,
        )
        for topic, resource in zip(topics, resources, strict=True)
    ]


async def _offsets(
    admin: AsyncAdmin, partitions: Iterable[TopicPartition], place: Place
) -> Mapping[TopicPartition, ListedOffset]:
    return await admin.list_offsets(dict.fromkeys(partitions, place))


async def _sizes(admin: AsyncAdmin, topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
    """The size of each partition on its leader, in bytes; empty if the brokers do not report it."""
    from ottla.base.ids import TopicPartition
    from ottla.net.client_connection import UnsupportedApiError

    leaders = {TopicPartition(topic.name, one.index): one.leader_id for topic in topics for one in topic.partitions}
    brokers = {leader for leader in leaders.values() if leader is not None}
    try:
        described = await admin.describe_log_dirs(brokers, partitions=leaders)
    except UnsupportedApiError:
        return {}
    return {
        partition: replica.size
        for broker_id, directories in described.items()
        for directory in directories.values()
        for partition, replica in directory.replicas.items()
        if leaders[partition] == broker_id and not replica.is_future
    }


async def _reassignments(admin: AsyncAdmin, topics: Iterable[TopicDescription]) -> dict[TopicPartition, Reassignment]:
    """The reassignments in progress; none if the brokers are too old to report them."""
    from ottla.base.ids import TopicPartition
    from ottla.net.client_connection import UnsupportedApiError

    partitions = [TopicPartition(topic.name, one.index) for topic in topics for one in topic.partitions]
    try:
        return await admin.list_partition_reassignments(partitions)
    except UnsupportedApiError:
        return {}


def _topic_row(
    topic: TopicDescription,
    configs: Mapping[str, str | None],
    first: Mapping[TopicPartition, int | None],
    end: Mapping[TopicPartition, int | None],
    sizes: Mapping[TopicPartition, int],
    moves: Mapping[TopicPartition, Reassignment],
) -> dict[str, Any]:
    from ottla.base.ids import TopicPartition

    partitions = []
    for one in topic.partitions:
        name = TopicPartition(topic.name, one.index)
        move = moves.get(name)
        partitions.append(
            {
                "partition": one.index,
                "leader": one.leader_id,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "first_offset": first.get(name),
                "next_offset": end.get(name),
                "bytes": sizes.get(name),
                "offline": list(one.offline),
                "adding": [] if move is None else list(move.adding),
                "removing": [] if move is None else list(move.removing),
            }
        )
    return {"topic": topic.name, "id": topic.topic_id, "configs": dict(configs), "partitions": partitions}


def _show_partitions(partitions: list[dict[str, Any]], title: str) -> None:
    columns = [
        column
        for column in _PARTITION_COLUMNS[1:]
        if column not in _ONLY_IF_ANY or any(one[column] for one in partitions)
    ]
    rows = [
        [size_text(one[column]) if column == "bytes" and one[column] is not None else one[column] for column in columns]
        for one in partitions
    ]
    headings = ["size" if column == "bytes" else column.replace("_", " ") for column in columns]
    show_rows(headings, rows, title=title)


def _partition_row(topic: Mapping[str, Any], partition: Mapping[str, Any]) -> tuple[Any, ...]:
    return (topic["topic"], *(partition[column] for column in _PARTITION_COLUMNS[1:]))
