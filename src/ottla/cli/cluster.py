"""`ottla cluster`: brokers, partitions that need attention, log directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.commands import Commands, on_cluster
from ottla.cli.output import counted, is_terminal, json_rows, note, show_json, show_rows, size_text
from ottla.cli.session import Json, with_admin

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, ClusterDescription, LogDirDescription, TopicDescription

app = Commands(
    help="Show brokers, partitions that need attention, and log directories.",
    invoke_without_command=True,
    no_args_is_help=False,
    epilog="Example: ottla cluster --json",
)

BROKER_COLUMNS: Final = ("broker", "address", "rack", "status", "leaders", "replicas", "out_of_sync")
PROBLEM_COLUMNS: Final = ("topic", "partition", "problem", "leader", "replicas", "in_sync", "min_in_sync")
LOG_DIR_COLUMNS: Final = ("broker", "log_dir", "status", "replicas", "moving_here", "bytes", "usable", "total")
_URGENCY: Final = ("offline", "under min ISR", "at min ISR", "under-replicated")
_MOST_SHOWN: Final = 10
_SIZES: Final = frozenset({"bytes", "usable", "total"})


@app.callback()
@on_cluster
def cluster(context: typer.Context, as_json: Json = False) -> None:
    """Show the brokers of the cluster, and partitions that need attention.

    Without a subcommand: the brokers with their rack and their number of leaders and replicas, the controller, and
    partitions that are offline or not fully replicated.
    """
    if context.invoked_subcommand is not None:
        return
    found = with_admin(context, survey)
    if as_json:
        show_json(found)
        return
    title = f"Cluster {found['cluster_id']}" if found["cluster_id"] else None
    rows = [tuple(broker[column] for column in BROKER_COLUMNS) for broker in found["brokers"]]
    show_rows(_headings(BROKER_COLUMNS), rows, title=title)
    shown = _worst(found["problems"]) if is_terminal() else []
    if shown:
        show_rows(_headings(PROBLEM_COLUMNS), _problem_rows(shown), title="Partitions that need attention")
    is_all = len(shown) == len(found["problems"])
    _sum_up(found, hint="" if is_all else " List them with `ottla cluster problems`.")


@app.command(epilog="Example: until ottla cluster problems --check; do sleep 5; done")
@on_cluster
def problems(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 if there are any, for scripts and rolling restarts.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List partitions that are offline, under min.insync.replicas, or under-replicated."""
    found = with_admin(context, survey)
    if as_json:
        show_json(found["problems"])
    elif found["problems"]:
        show_rows(_headings(PROBLEM_COLUMNS), _problem_rows(found["problems"]))
    _sum_up(found)
    if check and found["problems"]:
        raise typer.Exit(1)


@app.command("log-dirs", epilog="Example: ottla cluster log-dirs --broker 1 --broker 2")
@on_cluster
def log_dirs(
    context: typer.Context,
    brokers: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Show only this broker. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the log directories of brokers with their size, free space and number of replicas."""

    async def work(admin: AsyncAdmin) -> dict[int, dict[str, LogDirDescription]]:
        return await admin.describe_log_dirs(brokers)

    described = with_admin(context, work)
    rows = [
        _log_dir_row(broker_id, directory)
        for broker_id, directories in sorted(described.items())
        for _, directory in sorted(directories.items())
    ]
    if as_json:
        show_json(json_rows(LOG_DIR_COLUMNS, rows))
        return
    if is_terminal():
        rows = [tuple(_with_unit(*cell) for cell in zip(LOG_DIR_COLUMNS, row, strict=True)) for row in rows]
    show_rows(["size" if column == "bytes" else column for column in _headings(LOG_DIR_COLUMNS)], rows)


async def survey(admin: AsyncAdmin) -> dict[str, Any]:
    """The state of the cluster as a JSON value."""
    described = await admin.describe_cluster()
    topics = await admin.list_topics(include_internal=True)
    minimums = await _minimums(admin, topics)
    adding = await _adding(admin) if minimums and described.controller_id is not None else {}
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "brokers": _brokers(described, topics),
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "problems": list(_problems(topics, minimums, adding)),
    }


async def _minimums(admin: AsyncAdmin, topics: Iterable[TopicDescription]) -> dict[str, int]:
    """min.insync.replicas of the topics that have out-of-sync replicas; the others do not need it."""
    from ottla.client.administer import ConfigResource

    named = [
        ConfigResource.topic(topic.name)
        for topic in topics
        if any(len(one.in_sync) < len(one.replicas) or one.leader_id is None for one in topic.partitions)
    ]
    key = "min.insync.replicas"
    configs = await admin.describe_configs(named, keys=[key]) if named else {}
    return {resource.name: int(found[key].value or 1) for resource, found in configs.items()}


async def _adding(admin: AsyncAdmin) -> dict[tuple[str, int], int]:
    """How many replicas are being added to a partition, where any are. They are not expected to be in sync yet."""
    from ottla.client.errors import OttlaError

    try:
        moving = await admin.list_partition_reassignments()
    except OttlaError:  # the controller is away, or too old: what it would tell is not worth failing for
        return {}
    return {(name.topic, name.partition): len(each.adding) for name, each in moving.items()}


def _brokers(described: ClusterDescription, topics: Iterable[TopicDescription]) -> list[dict[str, Any]]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in topics:
        for one in topic.partitions:
            if one.leader_id is not None:
                leaders[one.leader_id] += 1
            replicas.update(one.replicas)
            behind.update(set(one.replicas) - set(one.in_sync))
    live = {node.broker_id: node for node in described.brokers}
    rows = []
    for broker_id in sorted({*live, *replicas}):
        node = live.get(broker_id)
        status = "offline" if node is None else "controller" if broker_id == described.controller_id else "online"
        rows.append(
            {
                "broker": broker_id,
                "address": None if node is None else f"{node.host}:{node.port}",
                "rack": None if node is None else node.rack,
                "status": status,
                "leaders": leaders[broker_id],
                "replicas": replicas[broker_id],
                "out_of_sync": behind[broker_id],
            }
        )
    return rows


def _problems(
    topics: Iterable[TopicDescription], minimums: dict[str, int], adding: dict[tuple[str, int], int]
) -> Iterable[dict[str, Any]]:
    """The worst problem of each partition that has one."""
    for topic in topics:
        for one in topic.partitions:
            minimum = min(minimums.get(topic.name, 1), len(one.replicas))  # as brokers do
            if one.leader_id is None:
                problem = "offline"
            elif len(one.in_sync) < minimum:
                problem = "under min ISR"
            elif len(one.in_sync) < len(one.replicas) - adding.get((topic.name, one.index), 0):
                problem = "at min ISR" if len(one.in_sync) == minimum else "under-replicated"
            else:
                continue
            yield {
                "topic": topic.name,
                "partition": one.index,
                "problem": problem,
                "leader": one.leader_id,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "min_in_sync": minimum,
            }


def _worst(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as leave the brokers on the screen, the most urgent first."""
    return sorted(found, key=lambda problem: _URGENCY.index(problem["problem"]))[:_MOST_SHOWN]


def _problem_rows(found: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(problem[column] for column in PROBLEM_COLUMNS) for problem in found]


def _sum_up(found: dict[str, Any], *, hint: str = "") -> None:
    partitions = f"{counted(found['partitions'], 'partition')} in {counted(found['topics'], 'topic')}"
    if found["controller"] is None:
        note("There is no controller at the moment: topics cannot be created, and no leader can be elected.")
    if not found["topics"]:
        note("There are no topics yet.")
        return
    if not found["problems"]:
        note(f"{partitions}, all with a leader and fully replicated.")
        return
    counts = Counter(problem["problem"] for problem in found["problems"])
    told = ", ".join(f"{count:,} {problem}" for problem, count in sorted(counts.items()))
    note(f"{partitions}: {told}.{hint}")


def _log_dir_row(broker_id: int, directory: LogDirDescription) -> tuple[Any, ...]:
    status = "online" if directory.error is None else directory.error.code.name
    if directory.is_cordoned:
        status = "cordoned"
    staying = [one for one in directory.replicas.values() if not one.is_future]
    return (
        broker_id,
        directory.path,
        status,
        len(staying),
        len(directory.replicas) - len(staying),
        sum(one.size for one in directory.replicas.values()),
        directory.usable_bytes,
        directory.total_bytes,
    )


def _with_unit(column: str, cell: Any) -> Any:
    return size_text(cell) if column in _SIZES and cell is not None else cell


def _headings(columns: Iterable[str]) -> list[str]:
    return [column.replace("_", " ") for column in columns]
