"""The subcommands of `ottla reassign`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.base.ids import TopicPartition
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_topics
from ottla.cli.output import confirm, counted, is_terminal, json_rows, note, show_json, show_rows, size_text
from ottla.cli.partition_names import described_partitions, parse_name
from ottla.cli.reassign.plan import Goal, PlanError, Replicas, moved_replicas
from ottla.cli.reassign.plan import plan as planned_by
from ottla.cli.reassign.plan_file import plan_text, read_plan
from ottla.cli.session import CommandError, Json, with_admin
from ottla.cli.topics import Yes

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, ClusterDescription, PartitionDescription, Reassignment

app = Commands(help="Move partitions to other brokers: plan, run, list and cancel reassignments.")

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:PARTITION]",
        help="Use only this topic or partition (default: all). Repeatable.",
        autocompletion=complete_topics,
    ),
]
PlanFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A plan, as `ottla reassign plan` saves it.", exists=True, dir_okay=False)
]

_PLAN_COLUMNS: Final = ("topic", "partition", "replicas", "planned", "adding", "removing", "bytes")
_MOVE_COLUMNS: Final = ("topic", "partition", "replicas", "adding", "removing")
_MAX_SHOWN: Final = 50


@app.command(epilog="Example: ottla reassign plan --drain 3 --out drain-3.json && ottla reassign run drain-3.json")
@on_cluster
def plan(
    context: typer.Context,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ID,…", help="Move all replicas to these brokers, evenly.")
    ] = None,
    drain: Annotated[
        str | None, typer.Option("--drain", metavar="ID,…", help="Move all replicas away from these brokers.")
    ] = None,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Spread replicas and leaders evenly over all brokers.")
    ] = False,
    topics: Topics = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Also change the replication factor to this number."),
    ] = None,
    ignore_racks: Annotated[
        bool, typer.Option("--ignore-racks", help="Do not spread the replicas of a partition over racks.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Save the plan in this file.")] = Path("reassignment.json"),
    as_json: Json = False,
) -> None:
    """Plan a reassignment. Changes nothing: run the plan with `ottla reassign run`.

    The plan moves as few replicas as possible, and spreads the replicas of a partition over racks. It is saved in the
    format of kafka-reassign-partitions, and the current assignment next to it, so that you can move back.

    [bold]Examples[/]

    ottla reassign plan --rebalance    (after adding a broker)

    ottla reassign plan --drain 3      (before removing broker 3)

    ottla reassign plan --to 1,2,4 --topic orders

    ottla reassign plan --rebalance --replication-factor 3 --topic orders
    """
    if (to is not None) + (drain is not None) + rebalance != 1:
        raise CommandError("give exactly one of --to, --drain and --rebalance")
    to_ids, drain_ids = _ids("--to", to), _ids("--drain", drain)

    async def work(
        admin: AsyncAdmin,
    ) -> tuple[dict[TopicPartition, Replicas], dict[TopicPartition, Replicas], dict[TopicPartition, int]]:
        cluster = await admin.describe_cluster()
        found = await described_partitions(admin, topics)
        current = {name: one.replicas for name, one in found.items()}
        goal = _goal(cluster, current, to_ids, drain_ids, replication_factor, ignore_racks=ignore_racks)
        try:
            planned = planned_by(current, goal)
        except PlanError as error:
            raise CommandError(str(error)) from None
        return current, planned, await _sizes(admin, {name: found[name] for name in planned})

    current, planned, sizes = with_admin(context, work)
    if not planned:
        if as_json:
            show_json([])
        note("Nothing to move: the replicas are already where they should be.")
        return
    rows = [
        (
            *partition,
            current[partition],
            replicas,
            _without(replicas, current[partition]),
            _without(current[partition], replicas),
            sizes.get(partition),
        )
        for partition, replicas in sorted(planned.items())
    ]
    rollback = out.with_name(f"{out.stem}.rollback{out.suffix}")
    out.write_text(plan_text(planned), "utf-8")
    rollback.write_text(plan_text({partition: current[partition] for partition in planned}), "utf-8")
    if as_json:
        show_json(json_rows(_PLAN_COLUMNS, rows))
    else:
        _show_plan(rows)
    copied = sum(len(row[4]) * (row[6] or 0) for row in rows)
    moved = moved_replicas(current, planned)
    data = f", about {size_text(copied)} of data" if copied else ""
    verb = "changes" if len(rows) == 1 else "change"
    note(f"{counted(len(rows), 'partition')} {verb}: {counted(moved, 'replica')} to copy{data}.")
    note(f"Saved the plan in {out}, and the current assignment in {rollback}.")
    note(f"Run it with `ottla reassign run {out}`.")


@app.command(epilog="Example: ottla reassign run reassignment.json --throttle 50MB")
@on_cluster
def run(
    context: typer.Context,
    file: PlanFile,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            help="Limit the replication traffic of each broker to this many bytes per second: 52428800, 50MB, 50MiB.",
        ),
    ] = None,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Do not remove the throttle at the end.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start the reassignment and exit.")] = False,
    yes: Yes = False,
) -> None:
    """Run a plan and show its progress until it is complete.

    Ctrl-C stops the display only: the reassignment continues. Run the same command again to watch it; a throttle is
    removed when the last partition has moved. Accepts files of kafka-reassign-partitions.
    """
    from ottla.cli.reassign.execution import Execution

    wanted = read_plan(file)
    rate = None if throttle is None else parse_size(throttle)
    again = f"ottla reassign run {file}"

    async def work(admin: AsyncAdmin) -> None:
        execution = await Execution.prepare(admin, wanted)
        if execution.to_start:
            question = f"Move {counted(len(execution.to_start), 'partition')}?"
            if not confirm(question, is_given=yes):
                raise CommandError("nothing was changed")
        await execution.start(rate)
        if no_wait:
            note(f"The reassignment is running. Watch it with `{again}`.")
            return
        await execution.wait()
        if not keep_throttle:
            await execution.remove_throttle()
        await execution.verify()

    try:
        with_admin(context, work)
    except KeyboardInterrupt:
        left = " The throttle stays until then." if rate is not None else ""
        note(f"\nThe reassignment continues in the cluster. Run `{again}` again to watch it.{left}")
        note(f"To stop it, run `ottla reassign cancel {file}`.")
        raise typer.Exit(130) from None


@app.command("list")
@on_cluster
def list_moves(context: typer.Context, topics: Topics = None, as_json: Json = False) -> None:
    """List reassignments in progress."""

    async def work(admin: AsyncAdmin) -> dict[TopicPartition, Reassignment]:
        return await _moves_of(admin, topics)

    moves = with_admin(context, work)
    rows = [(*name, one.replicas, one.adding, one.removing) for name, one in sorted(moves.items())]
    if as_json:
        show_json(json_rows(_MOVE_COLUMNS, rows))
    elif rows:
        show_rows(_MOVE_COLUMNS, rows)
    else:
        note("No partition is being reassigned.")


@app.command(epilog="Example: ottla reassign cancel reassignment.json")
@on_cluster
def cancel(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Cancel the partitions of this plan.", show_default=False, exists=True, dir_okay=False
        ),
    ] = None,
    topics: Topics = None,
    everything: Annotated[bool, typer.Option("--all", help="Cancel all reassignments in progress.")] = False,
    yes: Yes = False,
) -> None:
    """Cancel reassignments in progress. Replicas that are not complete yet are removed again.

    Partitions that have already moved stay where they are. Also removes the throttle of these partitions.
    """
    from ottla.cli.reassign.execution import Execution

    if (file is not None) + bool(topics) + everything != 1:
        raise CommandError("give exactly one of FILE, --topic and --all")
    of_file = None if file is None else read_plan(file)

    async def work(admin: AsyncAdmin) -> int:
        moves = await _moves_of(admin, topics)
        chosen = [name for name in moves if of_file is None or name in of_file]
        if not chosen:
            if of_file is not None:  # what moved may have left its throttle
                await (await Execution.prepare(admin, of_file)).remove_throttle()
            return 0
        if not confirm(f"Cancel the reassignment of {counted(len(chosen), 'partition')}?", is_given=yes):
            raise CommandError("nothing was cancelled")
        await admin.alter_partition_reassignments(dict.fromkeys(chosen))
        await Execution(admin, {name: moves[name].replicas for name in chosen}, moves).remove_throttle()
        return len(chosen)

    count = with_admin(context, work)
    note(f"Cancelled {counted(count, 'reassignment')}." if count else "No such reassignment is in progress.")


async def _moves_of(admin: AsyncAdmin, topics: Iterable[str] | None) -> dict[TopicPartition, Reassignment]:
    """The reassignments in progress of these topics and partitions, or all."""
    for text in topics or ():
        parse_name(text)
    names = None if topics is None else list(await described_partitions(admin, topics))
    return await admin.list_partition_reassignments(names)


def _goal(
    cluster: ClusterDescription,
    current: Mapping[TopicPartition, Replicas],
    to: Sequence[int],
    drain: Sequence[int],
    replication_factor: int | None,
    *,
    ignore_racks: bool,
) -> Goal:
    live = {node.broker_id: None if ignore_racks else node.rack for node in cluster.brokers}
    known = ", ".join(map(str, sorted(live)))
    if unknown := [one for one in to if one not in live]:
        raise CommandError(f"broker {unknown[0]} is not online; the online brokers are {known}")
    used = {broker for replicas in current.values() for broker in replicas}
    if unknown := [one for one in drain if one not in live and one not in used]:
        raise CommandError(f"there is no broker {unknown[0]}; the online brokers are {known}")
    if to:
        targets = {one: live[one] for one in to}
        keeping: set[int] = set()
    else:
        targets = {one: rack for one, rack in live.items() if one not in drain}
        keeping = used - set(live) - set(drain)
    if keeping:
        offline = ", ".join(map(str, sorted(keeping)))
        note(f"Broker {offline} is offline and keeps its replicas. Use --drain to move them to other brokers.")
    racks = set(targets.values())
    if None in racks and len(racks) > 1:
        note("Racks are ignored, because some of these brokers have no rack (broker.rack).")
    return Goal(targets, keeping, replication_factor, spread=not drain)


async def _sizes(
    admin: AsyncAdmin, partitions: Mapping[TopicPartition, PartitionDescription]
) -> dict[TopicPartition, int]:
    """The size of each partition on its leader, in bytes; empty if the brokers do not report it."""
    from ottla.net.client_connection import UnsupportedApiError

    leaders = {name: one.leader_id for name, one in partitions.items() if one.leader_id is not None}
    if not leaders:
        return {}
    try:
        described = await admin.describe_log_dirs(set(leaders.values()), partitions=leaders)
    except UnsupportedApiError:
        return {}
    return {
        name: replica.size
        for broker_id, directories in described.items()
        for directory in directories.values()
        for name, replica in directory.replicas.items()
        if leaders[name] == broker_id and not replica.is_future
    }


def _show_plan(rows: list[tuple[Any, ...]]) -> None:
    if not is_terminal():
        show_rows(_PLAN_COLUMNS, rows)
        return
    shown = [(*row[:-1], None if row[-1] is None else size_text(row[-1])) for row in rows[:_MAX_SHOWN]]
    show_rows([*_PLAN_COLUMNS[:-1], "size"], shown)
    if len(rows) > _MAX_SHOWN:
        note(f"… and {counted(len(rows) - _MAX_SHOWN, 'partition')} more.")


def _without(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [one for one in some if one not in others]


def _ids(option: str, text: str | None) -> list[int]:
    if text is None:
        return []
    ids = [one.strip() for one in text.split(",") if one.strip()]
    if not ids or not all(one.isdecimal() for one in ids):
        raise CommandError(f"{option} {text!r} is not a list of broker ids, for example 1,2,3")
    return list(dict.fromkeys(map(int, ids)))


def parse_size(text: str) -> int:
    """A number of bytes, with or without a unit."""
    units = {"": 1, "b": 1}
    for power, letter in enumerate("kmg", 1):
        units |= {letter: 1000**power, f"{letter}b": 1000**power, f"{letter}ib": 1024**power}
    stripped = text.strip().lower().removesuffix("/s")
    digits = stripped.rstrip("bkmgi ")
    unit = units.get(stripped[len(digits) :].strip())
    try:
        amount = float(digits) if unit is not None else 0.0
    except ValueError:
        amount = 0.0
    if unit is None or not amount >= 1 / unit:
        raise CommandError(f"{text!r} is not a number of bytes per second, for example 52428800, 50MB or 50MiB")
    return round(amount * unit)
