"""`ottla consume`: records out, as lines."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.output import silence_stdout
from ottla.cli.session import PATIENCE_MS, Bootstrap, CommandError, client_settings, reach

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.cli.record_formats import Formatter
    from ottla.client.consume import AsyncConsumer
    from ottla.client.metadata import TopicInfo

_RECORDS_AT_ONCE: Final = 10_000
_LOOK_UP_S: Final = 0.2


def consume(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the first record that is kept, not only what comes now.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option("--offset", "-o", help="From this offset on; a negative one counts back from the end."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="From this time on: '10 minutes ago', 2h, 2026-03-01T12:30."),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-P", min=0, help="Only this one; can be given several times.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            "-f",
            help="Wait for more at the end, as it does if not told otherwise, or end there.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="How a record looks: %k key, %v value, %h headers, %t topic, %p partition, %o offset, %T time in ms.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with everything.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the records of a topic as they come, or those that are there.

    Records of one partition come in order; partitions take turns.

    [bold]Examples[/]

    ottla consume orders

    ottla consume orders --from-beginning --no-follow --json

    ottla consume orders --since "1 hour ago" --format "%T %k: %v\\n"
    """
    from ottla.cli.record_formats import DEFAULT_TEMPLATE, json_formatter, template_formatter
    from ottla.cli.times import parse_time

    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise CommandError("only one of --from-beginning, --offset and --since can say where to begin")
    if as_json and template is not None:
        raise CommandError("--json is a format of its own: leave --format out")
    try:
        time = None if since is None else parse_time(since)
        formatter = json_formatter if as_json else template_formatter(template or DEFAULT_TEMPLATE)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def work() -> None:
        from ottla.client.consume import AsyncConsumer

        await reach(settings)
        async with AsyncConsumer(
            settings, max_poll_records=_RECORDS_AT_ONCE, default_api_timeout_ms=PATIENCE_MS, auto_offset_reset="none"
        ) as consumer:
            chosen = _chosen(await consumer.partitions_for(topic), partitions or [])
            places = await _places(consumer, chosen, from_beginning, offset, time)
            consumer.assign(places)
            for partition, place in places.items():
                consumer.seek(partition, place)
            ends = None if follow is not False else await consumer.end_offsets(chosen)
            await _show(consumer, formatter, count, ends)

    settings = client_settings(context, bootstrap)
    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        return  # how one ends `tail -f`
    except BrokenPipeError:
        silence_stdout()  # whoever reads us has had enough


def _chosen(topic: TopicInfo, wanted: list[int]) -> list[TopicPartition]:
    from ottla.base.ids import TopicPartition

    for index in wanted:
        if index >= len(topic.partitions):
            raise CommandError(f"topic {topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {index}")
    return [TopicPartition(topic.name, one.index) for one in topic.partitions if not wanted or one.index in wanted]


async def _places(
    consumer: AsyncConsumer,
    chosen: list[TopicPartition],
    from_beginning: bool,
    offset: int | None,
    since: datetime | None,
) -> dict[TopicPartition, int]:
    """The offsets to begin at."""
    from ottla.cli.times import milliseconds

    end = await consumer.end_offsets(chosen)
    if since is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(chosen, milliseconds(since)))
        return {partition: end[partition] if one is None else one.offset for partition, one in found.items()}
    if offset is None and not from_beginning:
        return end
    first = await consumer.beginning_offsets(chosen)
    if offset is None:
        return first
    if offset < 0:
        return {partition: max(first[partition], end[partition] + offset) for partition in chosen}
    for partition in chosen:
        if not first[partition] <= offset <= end[partition]:
            has = f"has offsets {first[partition]} to {end[partition] - 1}"
            if first[partition] == end[partition]:
                has = f"is empty, the next offset is {end[partition]}"
            raise CommandError(f"partition {partition} {has}; {offset} is not there")
    return dict.fromkeys(chosen, offset)


async def _show(
    consumer: AsyncConsumer, formatter: Formatter, count: int | None, ends: dict[TopicPartition, int] | None
) -> None:
    """Writes what comes, for ever or up to these ends; what a poll gives is written at once."""
    output = sys.stdout.buffer
    left = count
    while ends is None or await _is_before(consumer, ends):
        records = await consumer.poll(None if ends is None else _LOOK_UP_S, left)
        if records:
            output.write(b"".join(map(formatter, records)))
            output.flush()
        if left is not None:
            left -= len(records)
            if left == 0:
                return


async def _is_before(consumer: AsyncConsumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether there is anything left before the ends. Partitions that are done are given up."""
    for partition, end in list(ends.items()):
        if await consumer.position(partition) >= end:
            consumer.pause([partition])
            del ends[partition]
    return bool(ends)
