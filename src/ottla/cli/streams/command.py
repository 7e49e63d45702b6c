"""`ottla streams reset`: makes a streaming query start from the beginning.

What a query has done is kept in several places: its checkpoint, the group that shows its progress, internal topics, and
its output. Resetting one without the others loses or repeats records, so this command resets them together, in an order
in which an interrupted reset can be repeated: the checkpoint is moved away first and deleted last.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.output import confirm, counted, note, show_rows
from ottla.cli.session import CommandError, with_admin
from ottla.cli.streams.checkpoint import aside, checkpoints_at, delete_aside, note_topics, noted_topics, put_aside

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.cli.streams.checkpoint import Checkpoint
    from ottla.cli.streams.emptying import TopicToEmpty
    from ottla.client.administer import AsyncAdmin

app = Commands(help="Reset streaming queries.")

WATCH_S: Final = 10.0
"""The default: two of the longest usual trigger intervals."""

_COLUMNS: Final = ("what", "name", "now", "action")


@app.callback()
def streams() -> None:
    """A callback makes `reset` a subcommand although it is the only one."""


@app.command(
    epilog="Example: ottla streams reset checkpoints/totals --group spark-totals --internal-topic totals-by-city"
)
@on_cluster
def reset(
    context: typer.Context,
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint directory of the query.", show_default=False)
    ],
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Delete this consumer group, to which the query commits its progress. Repeatable.",
            autocompletion=complete_groups,
        ),
    ] = None,
    internal_topics: Annotated[
        list[str] | None,
        typer.Option(
            "--internal-topic",
            metavar="TOPIC",
            help="Empty this topic, which only the query writes and reads. Repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    output_topics: Annotated[
        list[str] | None,
        typer.Option(
            "--output-topic",
            metavar="TOPIC",
            help="Empty this output of the query. Without it, the query writes its results again after the old ones. "
            "Repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    watch_s: Annotated[
        float,
        typer.Option(
            "--watch", metavar="SECONDS", min=0, help="Watch the checkpoint this long for signs of a running query."
        ),
    ] = WATCH_S,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Make a stopped streaming query start from the beginning.

    Shows what it will do, asks on a terminal, and then resets the checkpoint, groups and topics together. Input topics
    are never changed. Refuses if a group has members, or if the checkpoint changes while it is watched: stop the query
    first. An interrupted reset can be repeated.
    """
    place = checkpoint.resolve()
    before = checkpoints_at(place)
    names = [*(internal_topics or []), *(output_topics or [])]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise CommandError(f"topic {doubled[0]} is given twice")
    if inputs := sorted({topic for one in before for topic in one.topics} & {*(output_topics or [])}):
        raise CommandError(
            f"the query reads topic {inputs[0]!r}, and inputs are never changed. If nothing else writes it, name it "
            "with --internal-topic"
        )

    async def look(admin: AsyncAdmin) -> tuple[list[TopicToEmpty], dict[str, dict[TopicPartition, int]]]:
        from ottla.cli.streams.emptying import look_at
        from ottla.client.administer import NewTopic

        deleted = {name: NewTopic(name, **how) for name, how in noted_topics(place).items()}
        topics = await look_at(admin, names, deleted)
        return topics, {group: await _offsets(admin, group) for group in dict.fromkeys(groups or [])}

    topics, offsets = with_admin(context, look)
    _show(place, before, offsets, topics, set(output_topics or []))
    if dry_run:
        note("Nothing was changed. Run the command again without --dry-run to reset the query.")
        return
    if not confirm("Is the query stopped, and shall it be reset?", is_given=yes):
        raise CommandError("nothing was changed")

    async def work(admin: AsyncAdmin) -> None:
        from ottla.cli.streams.emptying import empty

        await asyncio.sleep(watch_s)
        now = {group: await _offsets(admin, group) for group in offsets}
        moved = [group for group in offsets if now[group] != offsets[group]]
        if checkpoints_at(place) != before or moved:
            what = f"group {moved[0]}" if moved else f"checkpoint '{place}'"
            raise CommandError(
                f"the query is running: {what} has changed meanwhile. Stop it first; nothing was changed"
            )
        put_aside(place)
        note_topics(place, {topic.name: topic.how for topic in topics if topic.is_created_again})
        try:
            if existing := [group for group in offsets if offsets[group]]:
                await admin.delete_consumer_groups(existing)
            for topic in topics:
                await empty(admin, topic)
        except BaseException:
            note(f"The reset is incomplete, and the checkpoint is in '{aside(place)}'. Run the same command again.")
            raise
        delete_aside(place)

    with_admin(context, work)
    done = [counted(max(1, len(before)), "checkpoint"), counted(len(offsets), "group"), counted(len(topics), "topic")]
    note(f"Reset {', '.join(done[:2])} and {done[2]}. The query starts from the beginning, as its options say.")


async def _offsets(admin: AsyncAdmin, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group without members; none if it does not exist."""
    from ottla.base.error_codes import ErrorCode
    from ottla.client.administer import SomeRefusedError

    try:
        described = (await admin.describe_consumer_groups([group]))[group]
    except SomeRefusedError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise
    if described.members:
        count = counted(len(described.members), "member")
        raise CommandError(f"the query is running: group {group} has {count}. Stop it first; nothing was changed")
    return {one: at.offset for one, at in (await admin.list_consumer_group_offsets(group)).items()}


def _show(
    place: Path,
    checkpoints: list[Checkpoint],
    offsets: dict[str, dict[TopicPartition, int]],
    topics: list[TopicToEmpty],
    outputs: set[str],
) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for one in checkpoints:
        state = "no micro-batch" if one.last_planned is None else f"micro-batch {one.last_planned}"
        if one.is_unfinished:
            state += ", unfinished"
        rows.append(("checkpoint", str(one.place), state, "delete"))
    if not checkpoints:
        rows.append(("checkpoint", str(aside(place)), "of an interrupted reset", "delete"))
    for group, committed in offsets.items():
        rows.append(("group", group, counted(len(committed), "offset"), "delete" if committed else "none"))
    for topic in topics:
        kind = "output topic" if topic.name in outputs else "internal topic"
        action = "delete and create again" if topic.is_created_again else "delete all records"
        rows.append((kind, topic.name, counted(topic.records, "record"), action))
    named = {topic.name for topic in topics}
    inputs = sorted({topic for one in checkpoints for topic in one.topics} - named)
    rows.extend(("input topic", topic, "", "none") for topic in inputs)
    show_rows(_COLUMNS, rows)
