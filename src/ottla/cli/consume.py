"""`ottla consume`: records out, as lines."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.commands import on_cluster
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.output import is_terminal, note, silence_stdout
from ottla.cli.session import PATIENCE_MS, CommandError, reach, settings_of, topic_hints

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.cli.record_formats import Formatter
    from ottla.client.consume import AsyncConsumer, ConsumerRecord

_RECORDS_AT_ONCE: Final = 10_000
_LOOK_UP_S: Final = 0.2
_PATIENCE_S: Final = 5.0
"""For partitions, as a member of a group that has given it none."""


@on_cluster
def consume(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="One or more topics.", show_default=False, autocompletion=complete_topics),
    ] = None,
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            "-e",
            metavar="REGEX",
            help="Also read the topics whose whole name matches this regular expression. Repeatable.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this consumer group: continue at its offsets, and commit what is printed.",
            autocompletion=complete_groups,
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record. Same as --offset earliest.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="earliest|latest|N",
            help="Where to start: earliest, latest (default), an offset, or -N for the last N of each partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start at this time: '10 minutes ago', 2h, 2026-03-01T12:30."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop at this time, written as for --since, and then exit."),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-P", min=0, help="Read only this partition. Repeatable.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Exit after this many records.")] = None,
    follow: Annotated[
        bool | None,
        typer.Option("--follow/--no-follow", "-f", help="Keep waiting for new records (default), or exit at the end."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Print each record like this: %k key, %v value, %h headers, %t topic, %p partition, %o offset, %T ms.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as one JSON object per line.")] = False,
) -> None:
    """Print records as they arrive, or those that are there.

    Records of one partition come in order; partitions take turns. Topics that match --pattern are looked up at the
    start; with --group, also later.

    [bold]Examples[/]

    ottla consume orders

    ottla consume orders payments --from-beginning --no-follow --json

    ottla consume orders --since yesterday --until "1 hour ago" --format "%T %k: %v\\n"

    ottla consume --pattern "orders-.*" --group billing
    """
    from ottla.cli.consume_range import Range
    from ottla.cli.record_formats import DEFAULT_TEMPLATE, json_formatter, template_formatter
    from ottla.cli.times import parse_time

    if not topics and not patterns:
        raise CommandError("no topic is given: name one, or use --pattern")
    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise CommandError("only one of --from-beginning, --offset and --since can say where to start")
    if as_json and template is not None:
        raise CommandError("--json is a format of its own: leave out --format")
    if until is not None and follow:
        raise CommandError("--until stops and --follow does not: leave one out")
    try:
        formatter = json_formatter if as_json else template_formatter(template or DEFAULT_TEMPLATE)
        matching = [re.compile(pattern) for pattern in patterns or []]
        chosen = Range.parse("earliest" if from_beginning else offset, partitions or [])
        chosen.since = None if since is None else parse_time(since)
        chosen.until = None if until is None else parse_time(until)
    except re.error as error:
        raise CommandError(f"--pattern: {error.pattern!r} is not a regular expression: {error}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None
    if chosen.until is not None and chosen.until > datetime.now(UTC):
        raise CommandError(f"--until {until!r} lies in the future")
    if group is not None:
        chosen.check_for_group()
    at_end = not from_beginning and since is None and until is None and offset in (None, "latest")
    own: dict[str, object] = {
        "max.poll.records": _RECORDS_AT_ONCE,
        "default.api.timeout.ms": PATIENCE_MS,
        "auto.offset.reset": chosen.reset if group else "none",
        "enable.auto.commit": False,
    }

    async def work() -> None:
        from ottla.client.consume import AsyncConsumer

        await reach(settings)
        if is_terminal() and (hint := waiting_hint(group, at_end=at_end, follow=follow is not False)):
            note(hint)
        async with AsyncConsumer(settings) as consumer:
            if group is not None:
                consumer.subscribe(_subscription(topics or [], matching))
                await _show_as_member(consumer, _Printer(formatter, count), is_endless=follow is not False)
                return
            async with topic_hints(consumer.topics):
                names = await _names(consumer, topics or [], matching)
                bounds = await chosen.bounds(consumer, names, is_endless=follow is not False)
            consumer.assign(bounds)
            for partition, (first, end) in bounds.items():
                consumer.seek(partition, first, until=end)
            await _show(consumer, _Printer(formatter, count))

    from ottla.client.config import ConsumerConfig

    settings = settings_of(context).client_settings(ConsumerConfig, own)
    settings["group.id"] = group
    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        return  # how one ends `tail -f`
    except BrokenPipeError:
        silence_stdout()  # whoever reads us has had enough


def waiting_hint(group: str | None, *, at_end: bool, follow: bool) -> str | None:
    """What to tell a person who would otherwise look at an empty screen."""
    if not follow:
        return None
    if group is not None:
        return f"Joining group {group}; Ctrl-C leaves it."
    if at_end:
        return "Waiting for new records. --from-beginning also prints those that are already there. Ctrl-C stops."
    return None


async def _names(consumer: AsyncConsumer, topics: list[str], patterns: list[re.Pattern[str]]) -> list[str]:
    """The topics that are named, and those that match; internal ones only by their names."""
    names = dict.fromkeys(topics)
    if patterns:
        known = await consumer.topics()
        for pattern in patterns:
            found = [name for name, info in known.items() if not info.is_internal and pattern.fullmatch(name)]
            if not found:
                raise CommandError(f"no topic matches {pattern.pattern!r}")
            names |= dict.fromkeys(sorted(found))
    return list(names)


def _subscription(topics: list[str], patterns: list[re.Pattern[str]]) -> list[str] | re.Pattern[str]:
    """All of it as one: a group is subscribed to names or to a pattern."""
    if not patterns:
        return topics
    return re.compile("|".join([*(f"(?:{one.pattern})" for one in patterns), *map(re.escape, topics)]))


class _Printer:
    """Writes records to standard output, what a poll gives at once, and counts them."""

    def __init__(self, formatter: Formatter, count: int | None) -> None:
        self._formatter = formatter
        self._output = sys.stdout.buffer
        self.left = count

    @property
    def is_done(self) -> bool:
        return self.left == 0

    def write(self, records: list[ConsumerRecord]) -> None:
        self._output.write(b"".join(map(self._formatter, records)))
        self._output.flush()
        if self.left is not None:
            self.left -= len(records)


async def _show(consumer: AsyncConsumer, printer: _Printer) -> None:
    """Until all partitions are read to their ends, if they have any."""
    while not consumer.is_done and not printer.is_done:
        if records := await consumer.poll(None, printer.left):
            printer.write(records)


async def _show_as_member(consumer: AsyncConsumer, printer: _Printer, *, is_endless: bool) -> None:
    """What is printed is committed. Where it is not to go on for ever, it ends when all partitions that the group gives
    it are read up to where they ended when they were given."""
    ends: dict[TopicPartition, int] = {}
    looks_without = 0
    while not printer.is_done:
        if records := await consumer.poll(None if is_endless else _LOOK_UP_S, printer.left):
            printer.write(records)
            consumer.commit_async()
        if is_endless:
            continue
        assigned = consumer.assignment()
        looks_without = 0 if assigned or consumer.group_metadata().generation_id < 0 else looks_without + 1
        if looks_without * _LOOK_UP_S >= _PATIENCE_S:
            typer.echo("The group's other members have all partitions: nothing to read.", err=True)
            return
        ends = {one: end for one, end in ends.items() if one in assigned}
        if new := assigned - ends.keys():
            ends |= await consumer.end_offsets(new)
        if assigned and all([await consumer.position(one) >= end for one, end in ends.items()]):
            return
