"""`ottla elect`: elect leaders of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.base.error_codes import ErrorCode
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_topics
from ottla.cli.output import confirm, counted, json_rows, note, show_json, show_rows
from ottla.cli.partition_names import described_partitions
from ottla.cli.session import CommandError, Json, with_admin
from ottla.cli.topics import Yes, raise_all

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.administer import AsyncAdmin, ElectionType, PartitionDescription
    from ottla.client.errors import RefusedError

app = Commands(help="Elect leaders of partitions.")

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:PARTITION]",
        help="Elect only for this topic or partition. Repeatable.",
        autocompletion=complete_topics,
    ),
]

_COLUMNS: Final = ("topic", "partition", "old_leader", "new_leader")


@app.command(epilog="Example: ottla elect preferred --topic orders --topic payments:3")
@on_cluster
def preferred(context: typer.Context, topics: Topics = None, as_json: Json = False) -> None:
    """Make the preferred leader, the first replica of a partition, its leader.

    Partitions whose first replica is out of sync keep their leader. Run it after a broker has come back, or after a
    reassignment, to spread leaders evenly again. No records are lost.
    """

    async def work(admin: AsyncAdmin) -> tuple[list[tuple[Any, ...]], list[RefusedError], int]:
        from ottla.client.administer import ElectionType

        found = await described_partitions(admin, topics)
        misled = {name: one for name, one in found.items() if one.replicas and one.leader_id != one.replicas[0]}
        ready = {name: one for name, one in misled.items() if one.replicas[0] in one.in_sync}
        rows, failures = await _elect(admin, ElectionType.PREFERRED, ready)
        return rows, failures, len(misled) - len(ready)

    rows, failures, waiting = with_admin(context, work)
    _tell(rows, "Every partition that could be led by its preferred leader already is.", as_json=as_json)
    if waiting:
        note(f"{counted(waiting, 'partition')} cannot get the preferred leader, because it is offline or out of sync.")
    raise_all(failures)


@app.command(epilog="Example: ottla elect unclean --topic orders:0")
@on_cluster
def unclean(
    context: typer.Context,
    topics: Topics = None,
    everything: Annotated[bool, typer.Option("--all", help="Elect for all partitions without a leader.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Elect an out-of-sync replica for partitions without a leader. [bold]Records can be lost.[/]

    Use it only if no in-sync replica will come back: records that the new leader does not have are gone, including
    acknowledged ones. Partitions with a leader are not affected. Asks for confirmation on a terminal.
    """
    if bool(topics) == everything:
        raise CommandError("give either --topic or --all")

    async def work(admin: AsyncAdmin) -> tuple[list[tuple[Any, ...]], list[RefusedError]]:
        from ottla.client.administer import ElectionType

        found = await described_partitions(admin, topics)
        leaderless = {name: one for name, one in found.items() if one.leader_id is None}
        if not leaderless:
            return [], []
        question = f"Elect out-of-sync leaders of {counted(len(leaderless), 'partition')}? Records can be lost."
        if not confirm(question, is_given=yes):
            raise CommandError("no leader was elected")
        return await _elect(admin, ElectionType.UNCLEAN, leaderless)

    rows, failures = with_admin(context, work)
    _tell(rows, "No partition is without a leader.", as_json=as_json, is_quiet=bool(failures))
    raise_all(failures)


async def _elect(
    admin: AsyncAdmin, election_type: ElectionType, partitions: dict[TopicPartition, PartitionDescription]
) -> tuple[list[tuple[Any, ...]], list[RefusedError]]:
    """The partitions that got another leader, and what failed."""
    from ottla.client.administer import SomeRefusedError

    if not partitions:
        return [], []
    failures: list[RefusedError] = []
    try:
        elected = await admin.elect_leaders(election_type, partitions)
    except SomeRefusedError as error:
        elected = error.results
        failures = [one for one in error.errors.values() if one.code is not ErrorCode.ELECTION_NOT_NEEDED]
    names = {partition.topic for partition, has_changed in elected.items() if has_changed}
    now = await described_partitions(admin, sorted(names)) if names else {}
    rows = [
        (partition.topic, partition.partition, partitions[partition].leader_id, now[partition].leader_id)
        for partition, has_changed in sorted(elected.items())
        if has_changed
    ]
    return rows, failures


def _tell(rows: list[tuple[Any, ...]], nothing: str, *, as_json: bool, is_quiet: bool = False) -> None:
    if as_json:
        show_json(json_rows(_COLUMNS, rows))
        return
    if rows:
        show_rows([column.replace("_", " ") for column in _COLUMNS], rows)
        note(f"Elected {counted(len(rows), 'leader')}.")
    elif not is_quiet:
        note(nothing)
