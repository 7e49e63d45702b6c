"""`ottla groups`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.error_codes import ErrorCode
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.output import counted, is_terminal, json_rows, note, show_json, show_listing, show_rows
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
        help="Reset this topic, or only these partitions of it, for example orders:0,3. Repeatable.",
        autocompletion=complete_topics,
    ),
]

_OFFSET_COLUMNS = ("group", "topic", "partition", "committed", "end", "lag", "member", "client", "host")
_MEMBER_COLUMNS = ("group", "member", "instance", "client", "host", "topics", "partitions")
_RESET_COLUMNS = ("group", "topic", "partition", "committed", "new")


class StateFilter(StrEnum):
    """As Kafka's tools spell them, in lower case."""

    EMPTY = "empty"
    STABLE = "stable"
    PREPARING_REBALANCE = "preparingrebalance"
    COMPLETING_REBALANCE = "completingrebalance"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"


class Type(StrEnum):
    """The rebalance protocol of a group."""

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
            help=f"List only groups in this state: {', '.join(StateFilter)}. Repeatable.",
        ),
    ] = None,
    types: Annotated[
        list[Type] | None,
        typer.Option("--type", case_sensitive=False, help="List only groups with this protocol."),
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
    show_listing(columns, rows, as_json=as_json, empty="No groups found.")


@app.command(epilog="Example: ottla groups describe billing --json")
@on_cluster
def describe(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP",
            help="One or more groups (default: all).",
            show_default=False,
            autocompletion=complete_groups,
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


@app.command("reset", help="Same as reset-offsets.")
@app.command(
    "reset-offsets",
    epilog="Example: ottla groups reset-offsets billing --topic orders --to-datetime '2 hours ago' --execute",
)
@on_cluster
def reset_offsets(
    context: typer.Context,
    group: Group,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions with a committed offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offset.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Reset to the committed offset, or to the end if there is none.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="Reset to this offset.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move by N offsets; negative moves back.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Reset to the first record at or after this time, for example 2026-03-01T12:30.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="TIME", help="Reset to this long ago, for example 2h, '30 min' or PT1H30M."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            exists=True,
            dir_okay=False,
            help="Reset to the offsets in this CSV file, with lines of topic,partition,offset.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Reset the offsets, or only show the new ones (default).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reset the committed offsets of a group that has no members.

    An offset outside the log becomes the nearest valid one. Without --execute, nothing changes.
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
        raise CommandError(f"give exactly one of {', '.join(given)}")
    if from_file is None and bool(topics) == all_topics:
        raise CommandError("give either --topic TOPIC or --all-topics")
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
        note(f"Nothing to reset: group {group} has no committed offsets.")
    elif execute:
        note(f"Reset {counted(len(rows), 'offset')} of group {group}.")
    else:
        note("Nothing was changed. Run the command again with --execute to reset the offsets.")


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
            help="Delete the offsets of this topic, or of these partitions, for example orders:0,3. Repeatable.",
            autocompletion=complete_topics,
        ),
    ],
) -> None:
    """Delete committed offsets of topics that a group no longer consumes."""
    from ottla.cli.offset_resets import parse_topic

    async def work(admin: AsyncAdmin) -> int:
        partitions: set[TopicPartition] = set()
        committed = await admin.list_consumer_group_offsets(group)
        for text in topics:
            name, indexes = parse_topic(text)
            found = {one for one in committed if one.topic == name and (indexes is None or one.partition in indexes)}
            if not found:
                raise CommandError(f"group {group} has no committed offset for {text}")
            partitions |= found
        await admin.delete_consumer_group_offsets(group, partitions)
        return len(partitions)

    count = with_admin(context, work)
    note(f"Deleted {counted(count, 'offset')} of group {group}.")


def _has_offsets(group: GroupListing) -> bool:
    """Share groups and streams groups have tools of their own."""
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
    """A group can have offsets for topics that no longer exist."""
    from ottla.client.administer import LATEST, SomeRefusedError

    try:
        found = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    except SomeRefusedError as error:
        if any(one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in error.errors.values()):
            raise
        found = error.results
    return {partition: one.offset for partition, one in found.items()}


async def _check_empty(admin: AsyncAdmin, group: str) -> None:
    """Checked in a dry run as well, so that it reports what --execute would report."""
    from ottla.client.administer import SomeRefusedError

    try:
        described = (await admin.describe_consumer_groups([group]))[group]
    except SomeRefusedError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return  # the first offset creates the group
        raise
    if described.members:
        raise CommandError(
            f"group {group} is {described.state.value} and has {counted(len(described.members), 'member')}: stop its "
            "consumers before you reset its offsets"
        )


async def _chosen(
    admin: AsyncAdmin, topics: list[str] | None, without: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions that the options name, or `without` if they name none."""
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
                raise CommandError(f"topic {name} has no partition {index}: its partitions are 0 to {count - 1}")
            chosen[TopicPartition(name, index)] = None
    return sorted(chosen)


def _cells(columns: Iterable[str], row: dict[str, Any]) -> list[Any]:
    return [row[column] for column in columns if column != "group"]
