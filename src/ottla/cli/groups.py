"""`ottla groups`: list, describe and delete groups of consumers, and move their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.error_codes import ErrorCode
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.output import counted, is_terminal, json_rows, note, show_json, show_rows
from ottla.cli.session import CommandError, Json, with_admin
from ottla.cli.topics import raise_all

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.cli.offset_resets import PlannedOffset
    from ottla.client.administer import AsyncAdmin, GroupDescription, GroupListing

app = Commands(help="List and describe consumer groups, show their lag, and reset their offsets.")

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", show_default=False, autocompletion=complete_groups)
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,…]",
        help="Only this topic, or these partitions of it, as in orders:0,3. Repeatable.",
        autocompletion=complete_topics,
    ),
]

_OFFSET_COLUMNS = ("group", "topic", "partition", "committed", "end", "lag", "member", "client", "host")
_MEMBER_COLUMNS = ("group", "member", "instance", "client", "host", "topics", "partitions")
_RESET_COLUMNS = ("group", "topic", "partition", "committed", "new")


class StateFilter(StrEnum):
    """As Kafka's tools spell them, in small letters."""

    EMPTY = "empty"
    STABLE = "stable"
    PREPARING_REBALANCE = "preparingrebalance"
    COMPLETING_REBALANCE = "completingrebalance"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"


class Type(StrEnum):
    """By which protocol a group works."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@app.command("list")
@on_cluster
def list_groups(
    context: typer.Context,
    states: Annotated[
        list[StateFilter] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            case_sensitive=False,
            help=f"Only groups in this state: {', '.join(StateFilter)}. Repeatable.",
        ),
    ] = None,
    types: Annotated[
        list[Type] | None,
        typer.Option("--type", case_sensitive=False, help="Only groups of this protocol."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List consumer groups. In a pipe, print one name per line."""

    async def work(admin: AsyncAdmin) -> list[GroupListing]:
        from ottla.client.administer import GroupState, GroupType

        return await admin.list_groups(states=[*map(GroupState, states or [])], types=[*map(GroupType, types or [])])

    groups = with_admin(context, work)
    columns = ("group", "state", "type", "protocol", "coordinator")
    rows = [(one.group_id, one.state.value, one.type.value, one.protocol_type, one.coordinator_id) for one in groups]
    if as_json:
        show_json(json_rows(columns, rows))
    elif not is_terminal():
        for group in groups:
            typer.echo(group.group_id)
    elif rows:
        show_rows(columns, rows)
    else:
        note("There are no such groups.")


@app.command(epilog="Example: ottla groups describe billing --json")
@on_cluster
def describe(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP", help="The groups (default: all).", show_default=False, autocompletion=complete_groups
        ),
    ] = None,
    members: Annotated[bool, typer.Option("--members", "-m", help="Show members instead of offsets.")] = False,
    as_json: Json = False,
) -> None:
    """Show committed offsets, log end offsets, lag and members of groups."""

    async def work(admin: AsyncAdmin) -> list[dict[str, Any]]:
        wanted = names or [group.group_id for group in await admin.list_groups() if _has_offsets(group)]
        described = await admin.describe_consumer_groups(wanted)
        return [await _describe(admin, described[name]) for name in dict.fromkeys(wanted)]

    groups = with_admin(context, work)
    if as_json:
        show_json(groups)
        return
    columns, key = (_MEMBER_COLUMNS, "members") if members else (_OFFSET_COLUMNS, "partitions")
    if not is_terminal():
        show_rows(columns, ([group["group"], *_cells(columns, row)] for group in groups for row in group[key]))
        return
    for group in groups:
        counts = f"members: {len(group['members'])}, lag: {group['lag']}"
        title = f"{group['group']}  {group['state']}, {group['type']}, {counts}"
        if group[key]:
            show_rows(columns[1:], [_cells(columns, row) for row in group[key]], title=title)
        else:
            note(f"{title}: no {'members' if members else 'offsets committed'}.")


@app.command("reset", help="Reset offsets of a group. The same as reset-offsets.")
@app.command(
    "reset-offsets",
    epilog="Example: ottla groups reset-offsets billing --topic orders --to-datetime '2 hours ago' --execute",
)
@on_cluster
def reset_offsets(
    context: typer.Context,
    group: Group,
    topics: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions with committed offsets.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset, or to the end where there is none.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move by N records, back if N is negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="TIME", help="To the first record at or after this time: 2026-03-01T12:30, 1h ago."
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="TIME", help="To this long ago: 2h, 30 min, PT1H30M.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            exists=True,
            dir_okay=False,
            help="To the offsets in this file, in lines of topic,partition,offset.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Reset the offsets, or only show what would be done (default).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reset the offsets of a group that has no members. Its next members start there.

    An offset that a partition does not have becomes its nearest one. Without --execute nothing is changed.
    """
    from ottla.cli.offset_resets import Reset, plan, read_file
    from ottla.cli.times import milliseconds, parse_duration, parse_time

    try:
        given = {
            "--to-earliest": Reset.to_earliest() if to_earliest else None,
            "--to-latest": Reset.to_latest() if to_latest else None,
            "--to-current": Reset.to_current() if to_current else None,
            "--to-offset": None if to_offset is None else Reset.to_offset(to_offset),
            "--shift-by": None if shift_by is None else Reset.shift_by(shift_by),
            "--to-datetime": None if to_datetime is None else Reset.to_time(milliseconds(parse_time(to_datetime))),
            "--by-duration": None if by_duration is None else Reset.to_time(milliseconds(parse_duration(by_duration))),
            "--from-file": None if from_file is None else Reset.to_each(read_file(from_file)),
        }
    except ValueError as error:
        raise CommandError(str(error)) from None
    chosen = [reset for reset in given.values() if reset is not None]
    if len(chosen) != 1:
        raise CommandError(f"say where to, in one way: {', '.join(given)}")
    if from_file is None and bool(topics) == all_topics:
        raise CommandError("say for which partitions: --topic TOPIC, or --all-topics that the group has offsets of")
    (reset,) = chosen

    async def work(admin: AsyncAdmin) -> list[PlannedOffset]:
        await _check_empty(admin, group)
        committed = {one: at.offset for one, at in (await admin.list_consumer_group_offsets(group)).items()}
        partitions = await _chosen(admin, topics, committed if reset.offsets is None else reset.offsets)
        planned = await plan(admin, reset, partitions, committed)
        if execute and planned:
            await admin.alter_consumer_group_offsets(group, {one.partition: one.new for one in planned})
        return planned

    planned = with_admin(context, work)
    rows = [(group, *one.partition, one.committed, one.new) for one in planned]
    for one in planned:
        if one.remark:
            note(f"{one.partition}: {one.remark}")
    if as_json:
        show_json(json_rows(_RESET_COLUMNS, rows))
    elif rows:
        show_rows(_RESET_COLUMNS, rows)
    if not rows:
        note(f"There is nothing to reset: group {group} has committed no offsets.")
    elif execute:
        note(f"Moved {counted(len(rows), 'offset')} of group {group}.")
    else:
        note("Nothing was changed yet. Run the command again with --execute to move the offsets.")


@app.command(epilog="Example: ottla groups delete billing")
@on_cluster
def delete(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="GROUP", help="One or more groups.", show_default=False, autocompletion=complete_groups),
    ],
) -> None:
    """Delete groups that have no members, and their committed offsets."""

    async def work(admin: AsyncAdmin) -> None:
        from ottla.client.administer import SomeRefusedError

        try:
            await admin.delete_consumer_groups(names)
        except SomeRefusedError as error:
            for name in error.results:
                note(f"Deleted group {name}.")
            raise_all(error.errors.values())
        for name in names:
            note(f"Deleted group {name}.")

    with_admin(context, work)


@app.command("delete-offsets", epilog="Example: ottla groups delete-offsets billing --topic orders")
@on_cluster
def delete_offsets(
    context: typer.Context,
    group: Group,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,…]",
            help="The topic, or partitions of it. Repeatable.",
            autocompletion=complete_topics,
        ),
    ],
) -> None:
    """Delete committed offsets of topics that a group does not read any more."""
    from ottla.cli.offset_resets import parse_topic

    async def work(admin: AsyncAdmin) -> int:
        partitions: set[TopicPartition] = set()
        committed = await admin.list_consumer_group_offsets(group)
        for text in topics:
            name, indexes = parse_topic(text)
            found = {one for one in committed if one.topic == name and (indexes is None or one.partition in indexes)}
            if not found:
                raise CommandError(f"group {group} has committed no offset of {text}")
            partitions |= found
        await admin.delete_consumer_group_offsets(group, partitions)
        return len(partitions)

    count = with_admin(context, work)
    note(f"Deleted {counted(count, 'offset')} of group {group}.")


def _has_offsets(group: GroupListing) -> bool:
    """Share groups and those of streams are others, for tools of their own."""
    from ottla.client.administer import GroupType

    return group.type not in (GroupType.SHARE, GroupType.STREAMS)


async def _describe(admin: AsyncAdmin, group: GroupDescription) -> dict[str, Any]:
    committed = await admin.list_consumer_group_offsets(group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    ends = await _ends(admin, partitions)
    rows = []
    for partition in partitions:
        offset = committed[partition].offset if partition in committed else None
        end, member = ends.get(partition), readers.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": member and member.member_id,
                "client": member and member.client_id,
                "host": member and member.host,
            }
        )
    return {
        "group": group.group_id,
        "state": group.state.value,
        "type": group.type.value,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "lag": sum(row["lag"] or 0 for row in rows),
        "partitions": rows,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "topics": [*member.subscribed_topics, *([member.subscribed_pattern] * bool(member.subscribed_pattern))],
                "partitions": [str(partition) for partition in member.assignment],
            }
            for member in group.members
        ],
    }


async def _ends(admin: AsyncAdmin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Topics of which a group has offsets may be gone."""
    from ottla.client.administer import LATEST, SomeRefusedError

    try:
        found = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    except SomeRefusedError as error:
        if any(one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in error.errors.values()):
            raise
        found = error.results
    return {partition: one.offset for partition, one in found.items()}


async def _check_empty(admin: AsyncAdmin, group: str) -> None:
    """That members would be in the way is told also where nothing is to be done yet."""
    from ottla.client.administer import SomeRefusedError

    try:
        described = (await admin.describe_consumer_groups([group]))[group]
    except SomeRefusedError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return  # it is made with its first offset
        raise
    if described.members:
        raise CommandError(
            f"group {group} is {described.state.value} and has {counted(len(described.members), 'member')}: stop its "
            "consumers before you move its offsets"
        )


async def _chosen(
    admin: AsyncAdmin, topics: list[str] | None, without: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions that the options name; `without` any, these."""
    from ottla.base.ids import TopicPartition
    from ottla.cli.offset_resets import parse_topic

    if not topics:
        return sorted(without)
    named = [parse_topic(text) for text in topics]
    described = await admin.describe_topics(name for name, _ in named)
    chosen: dict[TopicPartition, None] = {}
    for name, indexes in named:
        count = len(described[name].partitions)
        for index in range(count) if indexes is None else indexes:
            if index >= count:
                raise CommandError(f"topic {name} has partitions 0 to {count - 1}, not {index}")
            chosen[TopicPartition(name, index)] = None
    return sorted(chosen)


def _cells(columns: Iterable[str], row: dict[str, Any]) -> list[Any]:
    return [row[column] for column in columns if column != "group"]
