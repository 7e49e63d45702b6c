"""`ottla transactions`: list and describe transactions, find and abort hanging ones, fence producers."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.base.error_codes import ErrorCode
from ottla.cli.commands import Commands, on_cluster
from ottla.cli.completion import complete_topics, complete_transactional_ids
from ottla.cli.output import confirm, counted, is_terminal, json_rows, note, show_json, show_listing, show_rows
from ottla.cli.partition_names import described_partitions, parse_name
from ottla.cli.session import CommandError, Json, with_admin
from ottla.cli.times import parse_duration, span_text
from ottla.cli.topics import Yes, raise_all

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.administer import (
        AsyncAdmin,
        FencedProducer,
        HangingTransaction,
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )

app = Commands(help="List and describe transactions, find and abort hanging ones, and fence producers.")

Broker = Annotated[
    int | None,
    typer.Option(
        "--broker", metavar="ID", help="Ask this broker, about its replicas (default: the leaders).", show_default=False
    ),
]

_PRODUCER_COLUMNS: Final = (
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch"),
    *("last_sequence", "last_timestamp", "start_offset"),
)
_HANGING_COLUMNS: Final = (
    *("topic", "partition", "start_offset", "producer_id", "producer_epoch", "coordinator_epoch"),
    *("transactional_id", "last_timestamp", "idle_ms"),
)


class StateFilter(StrEnum):
    """As Kafka's tools spell them, in lower case."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "preparecommit"
    PREPARE_ABORT = "prepareabort"
    COMPLETE_COMMIT = "completecommit"
    COMPLETE_ABORT = "completeabort"


@app.command("list", epilog="Example: ottla transactions list --state ongoing --longer-than '10 min'")
@on_cluster
def list_transactions(
    context: typer.Context,
    states: Annotated[
        list[StateFilter] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            case_sensitive=False,
            help=f"List only transactional ids in this state: {', '.join(StateFilter)}. Repeatable.",
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", min=0, help="List only this producer id. Repeatable."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            metavar="TIME",
            help="List only transactions that have been open for longer than this, for example 10min or PT1H.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="List only transactional ids that match this regular expression."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List transactional ids. In a pipe, print one per line.

    A transactional id stays in the list after its transaction has ended, until it expires. Brokers before Kafka 3.8
    cannot filter by duration, those before 4.1 not by pattern.
    """
    min_duration = None if longer_than is None else _seconds(longer_than)

    async def work(admin: AsyncAdmin) -> list[TransactionListing]:
        from ottla.client.administer import TransactionState

        return await admin.list_transactions(
            states=[*map(TransactionState, states or [])],
            producer_ids=producer_ids or [],
            min_duration=min_duration,
            pattern=pattern,
        )

    found = with_admin(context, work)
    columns = ("transactional_id", "state", "producer_id", "coordinator")
    rows = [(one.transactional_id, one.state.value, one.producer_id, one.coordinator_id) for one in found]
    empty = "No transactional ids found."
    show_listing(columns, rows, as_json=as_json, empty=empty, headings=_headings(columns))


@app.command(epilog="Example: ottla transactions describe payments-1")
@on_cluster
def describe(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="One or more transactional ids (default: those with an open transaction).",
            show_default=False,
            autocompletion=complete_transactional_ids,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show state, producer, timeout and partitions of transactions.

    The partitions are those that are part of the open transaction and have no commit or abort marker yet.
    """

    async def work(admin: AsyncAdmin) -> list[TransactionDescription]:
        from ottla.client.administer import TransactionState

        wanted = names
        if not wanted:
            open_states = [state for state in TransactionState if state.is_open]
            wanted = [one.transactional_id for one in await admin.list_transactions(states=open_states)]
        described = await _described(admin, wanted)
        return [described[name] for name in dict.fromkeys(wanted)]

    found = with_admin(context, work)
    now_ms = time.time() * 1000
    columns = (
        *("transactional_id", "state", "producer_id", "producer_epoch", "coordinator"),
        *("timeout_ms", "start_time_ms", "partitions"),
    )
    rows = [
        (
            *(one.transactional_id, one.state.value, one.producer_id, one.producer_epoch, one.coordinator_id),
            *(one.timeout_ms, one.start_time_ms, [str(partition) for partition in one.partitions]),
        )
        for one in found
    ]
    if as_json:
        show_json(
            [
                {**row, "two_phase_commit": one.is_two_phase}
                for one, row in zip(found, json_rows(columns, rows), strict=True)
            ]
        )
    elif not is_terminal():
        show_rows(columns, rows)
    elif found:
        shown = (
            *("transactional id", "state", "producer id", "epoch", "coordinator"),
            *("timeout", "open for", "partitions"),
        )
        show_rows(shown, [(*row[:5], *_times(one, now_ms), row[7]) for one, row in zip(found, rows, strict=True)])
    else:
        note("No transaction is open.")


@app.command("describe-producers", epilog="Example: ottla transactions describe-producers orders:0")
@on_cluster
def describe_producers(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITION]",
            help="One or more topics or partitions.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    broker: Broker = None,
    as_json: Json = False,
) -> None:
    """Show the idempotent and transactional producers that partitions know.

    A producer with a start offset has an open transaction: read_committed consumers do not get past that offset.
    """

    async def work(admin: AsyncAdmin) -> dict[TopicPartition, list[ProducerState]]:
        found = await described_partitions(admin, names)
        chosen = [name for name, one in found.items() if broker is None or broker in one.replicas]
        if not chosen:
            raise CommandError(f"broker {broker} has no replica of these partitions")
        return await admin.describe_producers(chosen, broker_id=broker)

    found = with_admin(context, work)
    rows = [
        (
            *(*partition, one.producer_id, one.producer_epoch, one.coordinator_epoch),
            *(one.last_sequence, one.last_timestamp, one.current_transaction_start_offset),
        )
        for partition, producers in sorted(found.items())
        for one in producers
    ]
    if as_json:
        show_json(json_rows(_PRODUCER_COLUMNS, rows))
    elif rows or not is_terminal():
        show_rows(_headings(_PRODUCER_COLUMNS), [(*row[:6], _time_text(row[6]), row[7]) for row in rows])
    else:
        note("These partitions know no producers.")


@app.command("find-hanging", epilog="Example: ottla transactions find-hanging --topic orders --check")
@on_cluster
def find_hanging(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="Search only this topic or partition (default: the whole cluster). Repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    broker: Broker = None,
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-timeout",
            metavar="TIME",
            help="Look only at transactions without a write for this long. Use the highest transaction.max.timeout.ms "
            "of your brokers.",
        ),
    ] = "15min",
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 if there is a hanging transaction.")] = False,
    as_json: Json = False,
) -> None:
    """Find open transactions that no coordinator knows.

    Nobody ends such a transaction: read_committed consumers wait at its start offset forever. End it with
    `ottla transactions abort`.
    """
    seconds = _seconds(max_timeout)

    async def work(admin: AsyncAdmin) -> list[HangingTransaction]:
        chosen = None
        if topics:
            found = await described_partitions(admin, topics)
            chosen = [name for name, one in found.items() if broker is None or broker in one.replicas]
        return await admin.find_hanging_transactions(chosen, broker_id=broker, max_transaction_timeout=seconds)

    found = with_admin(context, work)
    now_ms = round(time.time() * 1000)
    rows = [_hanging_row(one, now_ms) for one in found]
    if as_json:
        show_json(json_rows(_HANGING_COLUMNS, rows))
    elif not is_terminal():
        show_rows(_HANGING_COLUMNS, rows)
    elif rows:
        shown = [(*row[:7], None if row[8] is None else span_text(row[8] / 1000)) for row in rows]
        show_rows([*_headings(_HANGING_COLUMNS[:7]), "idle for"], shown)
    if not rows:
        note("No hanging transactions found.")
        return
    first = found[0]
    note(
        f"{counted(len(rows), 'hanging transaction')}. Abort the first one with `ottla transactions abort "
        f"{first.partition.topic}:{first.partition.partition} "
        f"--start-offset {first.producer.current_transaction_start_offset}`."
    )
    if check:
        raise typer.Exit(1)


@app.command(epilog="Example: ottla transactions abort orders:0 --start-offset 1042")
@on_cluster
def abort(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC:PARTITION", help="The partition.", show_default=False, autocompletion=complete_topics
        ),
    ],
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="N", min=0, help="Abort the transaction that starts at this offset."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", min=0, help="Abort the transaction of this producer.")
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option("--producer-epoch", metavar="N", help="Set the producer epoch (default: that in the partition)."),
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch", metavar="N", help="Set the coordinator epoch (default: that in the partition)."
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Abort even if a coordinator knows the transaction, or none could be asked."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Abort a hanging transaction in one partition.

    Get the partition and the start offset from `ottla transactions find-hanging`. Transactions that a coordinator still
    knows are refused: abort those in all their partitions with `ottla transactions fence`. With brokers before
    Kafka 3.0, give --producer-id, both epochs and --force. Asks for confirmation on a terminal.
    """
    from ottla.base.ids import TopicPartition

    topic, index = parse_name(name)
    if index is None:
        raise CommandError(f"{name!r} is not of the form TOPIC:PARTITION, for example {name}:0")
    if (start_offset is None) == (producer_id is None):
        raise CommandError("give either --start-offset or --producer-id")
    partition = TopicPartition(topic, index)
    which = f"that starts at offset {start_offset}" if producer_id is None else f"of producer id {producer_id}"
    if not confirm(f"Abort the transaction {which} in {partition}?", is_given=yes):
        raise CommandError("nothing was aborted")

    async def work(admin: AsyncAdmin) -> None:
        if not force:
            await described_partitions(admin, [name])
            await _check_hanging(admin, partition, start_offset, producer_id)
        await admin.abort_transaction(
            partition,
            start_offset=start_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    with_admin(context, work)
    note(f"Aborted the transaction {which} in {partition}.")


@app.command(epilog="Example: ottla transactions fence payments-1")
@on_cluster
def fence(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="ID",
            help="One or more transactional ids.",
            show_default=False,
            autocompletion=complete_transactional_ids,
        ),
    ],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Fence the producers of transactional ids, and abort their open transactions.

    A running producer with such an id fails, and has to be restarted. This also aborts transactions that are prepared
    for two-phase commit. Asks for confirmation on a terminal.
    """
    listed = ", ".join(names)
    if not confirm(f"Fence the producers of {listed}, and abort their open transactions?", is_given=yes):
        raise CommandError("nothing was fenced")

    async def work(admin: AsyncAdmin) -> tuple[dict[str, FencedProducer], list[Any]]:
        from ottla.client.administer import SomeRefusedError

        await _described(admin, names)  # the coordinator would create an id that does not exist
        try:
            return await admin.fence_producers(names), []
        except SomeRefusedError as error:
            return error.results, list(error.errors.values())

    fenced, failures = with_admin(context, work)
    columns = ("transactional_id", "producer_id", "producer_epoch")
    rows = [(name, one.producer_id, one.producer_epoch) for name, one in fenced.items()]
    if as_json:
        show_json(json_rows(columns, rows))
    for name in fenced:
        note(f"Fenced the producers of {name}.")
    raise_all(failures)


async def _described(admin: AsyncAdmin, names: list[str]) -> dict[str, TransactionDescription]:
    """Refuses transactional ids that do not exist."""
    from ottla.client.administer import SomeRefusedError

    try:
        return await admin.describe_transactions(names)
    except SomeRefusedError as error:
        raise CommandError(
            "\n".join(
                f"transactional id {name!r} does not exist; list them with `ottla transactions list`"
                if one.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                else str(one)
                for name, one in error.errors.items()
            )
        ) from None


async def _check_hanging(
    admin: AsyncAdmin, partition: TopicPartition, start_offset: int | None, producer_id: int | None
) -> None:
    """Refuses a transaction that its coordinator will end."""
    for one in await admin.find_hanging_transactions([partition], max_transaction_timeout=0):
        if producer_id == one.producer.producer_id or start_offset == one.producer.current_transaction_start_offset:
            return
    for producer in (await admin.describe_producers([partition]))[partition]:
        begins = producer.current_transaction_start_offset
        if begins is not None and (producer_id == producer.producer_id or start_offset == begins):
            owners = await admin.list_transactions(producer_ids=[producer.producer_id])
            name = owners[0].transactional_id if owners else "ID"
            raise CommandError(
                f"the transaction at offset {begins} of {partition} is not hanging: it belongs to transactional id "
                f"{name!r}, and its coordinator will end it. To abort it in all partitions now, run "
                f"`ottla transactions fence {name}`"
            )
    which = f"starts at offset {start_offset}" if producer_id is None else f"belongs to producer id {producer_id}"
    raise CommandError(
        f"no open transaction in {partition} {which}; list the producers with "
        f"`ottla transactions describe-producers {partition.topic}:{partition.partition}`"
    )


def _hanging_row(one: HangingTransaction, now_ms: int) -> tuple[Any, ...]:
    producer = one.producer
    idle_ms = None if producer.last_timestamp is None else max(0, now_ms - producer.last_timestamp)
    return (
        *(*one.partition, producer.current_transaction_start_offset, producer.producer_id, producer.producer_epoch),
        *(producer.coordinator_epoch, one.transactional_id, producer.last_timestamp, idle_ms),
    )


def _times(one: TransactionDescription, now_ms: float) -> tuple[str, str | None]:
    """The timeout, and how long the transaction has been open."""
    timeout = "none (two-phase)" if one.is_two_phase else span_text(one.timeout_ms / 1000)
    if one.start_time_ms is None or not one.state.is_open:
        return timeout, None
    return timeout, span_text(max(0.0, now_ms - one.start_time_ms) / 1000)


def _time_text(timestamp_ms: int | None) -> str | int | None:
    """A time to read on a terminal, milliseconds in a pipe."""
    if timestamp_ms is None or not is_terminal():
        return timestamp_ms
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _headings(columns: tuple[str, ...]) -> list[str]:
    return [column.replace("_", " ") for column in columns]


def _seconds(text: str) -> float:
    now = datetime.now(UTC)
    try:
        return (now - parse_duration(text, now)).total_seconds()
    except ValueError as error:
        raise CommandError(str(error)) from None
