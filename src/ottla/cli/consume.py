"""`ottla consume`: records out, as lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.output import silence_stdout
from ottla.cli.session import Bootstrap, CommandError, with_cluster

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.cli.record_formats import Formatter
    from ottla.client.cluster import Cluster
    from ottla.client.consumer import Consumer
    from ottla.client.metadata import TopicInfo
    from ottla.client.offsets import Place


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

    async def work(cluster: Cluster) -> None:
        from ottla.client.consumer import Consumer

        places = await _places(cluster, await cluster.topic(topic), partitions or [], from_beginning, offset, time)
        async with Consumer(cluster) as consumer:
            await consumer.assign(places)
            await _show(consumer, formatter, count, follow is not False)

    try:
        with_cluster(context, bootstrap, work)
    except KeyboardInterrupt:
        return  # how one ends `tail -f`
    except BrokenPipeError:
        silence_stdout()  # whoever reads us has had enough


async def _places(
    cluster: Cluster,
    topic: TopicInfo,
    wanted: list[int],
    from_beginning: bool,
    offset: int | None,
    since: datetime | None,
) -> Mapping[TopicPartition, Place | int]:
    from ottla.base.ids import TopicPartition
    from ottla.cli.times import milliseconds
    from ottla.client.offsets import EARLIEST, LATEST, Place, offsets_at

    for index in wanted:
        if index >= len(topic.partitions):
            raise CommandError(f"topic {topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {index}")
    chosen = [TopicPartition(topic.name, one.index) for one in topic.partitions if not wanted or one.index in wanted]
    if offset is not None and offset >= 0:
        return dict.fromkeys(chosen, offset)
    if offset is not None:
        first = await offsets_at(cluster, dict.fromkeys(chosen, EARLIEST))
        end = await offsets_at(cluster, dict.fromkeys(chosen, LATEST))
        return {partition: max(first[partition], end[partition] + offset) for partition in chosen}
    if since is not None:
        return dict.fromkeys(chosen, Place.at_time(milliseconds(since)))
    return dict.fromkeys(chosen, EARLIEST if from_beginning else LATEST)


async def _show(consumer: Consumer, formatter: Formatter, count: int | None, follow: bool) -> None:
    """Writes what comes until there is no more to be waited for. Each answer of a broker is written at once."""
    output = sys.stdout.buffer
    left = count
    async for fetched in consumer:
        records = fetched.records if left is None else fetched.records[:left]
        output.write(b"".join([formatter(fetched.partition, record) for record in records]))
        output.flush()
        if left is not None:
            left -= len(records)
            if left == 0:
                return
        if not follow and fetched.is_at_end:
            consumer.forget(fetched.partition)
