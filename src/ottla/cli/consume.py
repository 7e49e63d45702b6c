"""`ottla consume`: print records."""

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
"""How long to wait for partitions as a group member that has none assigned."""


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
            help="Also consume topics whose full name matches this regular expression. Repeatable.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Consume as a member of this group: start at its committed offsets, and commit printed records.",
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
            help="Start at earliest, latest (default), an offset, or -N for the last N records of each partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Start at this time, for example '10 minutes ago', 2h or 2026-03-01T12:30."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop at this time and exit; same format as --since."),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-P", min=0, help="Consume only this partition. Repeatable.")
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
    """Print the records of topics, waiting for new ones.

    Records of one partition are printed in order; the order across partitions is not defined. Topics that match
    --pattern are looked up once at the start; with --group, continuously.

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
        raise CommandError("no topic given: name a topic or use --pattern")
    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise CommandError("use only one of --from-beginning, --offset and --since")
    if as_json and template is not None:
        raise CommandError("--json and --format cannot be used together")
    if until is not None and follow:
        raise CommandError("--until and --follow cannot be used together")
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
        raise CommandError(f"--until {until!r} is in the future")
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
        return  # Ctrl-C is the usual way to stop following
    except BrokenPipeError:
        silence_stdout()  # the reader of the pipe has closed it


def waiting_hint(group: str | None, *, at_end: bool, follow: bool) -> str | None:
    """A hint for a user who would otherwise see an empty screen."""
    if not follow:
        return None
    if group is not None:
        return f"Joining group {group}. Press Ctrl-C to leave."
    if at_end:
        return "Waiting for new records. Use --from-beginning to include existing ones. Press Ctrl-C to stop."
    return None


async def _names(consumer: AsyncConsumer, topics: list[str], patterns: list[re.Pattern[str]]) -> list[str]:
    """The named topics and those that match a pattern; internal topics only if named."""
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
    """One subscription for all: a group member subscribes either to names or to one pattern."""
    if not patterns:
        return topics
    return re.compile("|".join([*(f"(?:{one.pattern})" for one in patterns), *map(re.escape, topics)]))


class _Printer:
    """Writes the records of a poll to standard output at once, and counts them."""

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
    """Runs until every partition has reached its end offset, if it has one."""
    while not consumer.is_done and not printer.is_done:
        if records := await consumer.poll(None, printer.left):
            printer.write(records)


async def _show_as_member(consumer: AsyncConsumer, printer: _Printer, *, is_endless: bool) -> None:
    """Commits what it prints. Without `is_endless`, it stops once every assigned partition has been read up to the end
    it had when it was assigned."""
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
            typer.echo("All partitions are assigned to other members of the group: nothing to consume.", err=True)
            return
        ends = {one: end for one, end in ends.items() if one in assigned}
        if new := assigned - ends.keys():
            ends |= await consumer.end_offsets(new)
        if assigned and all([await consumer.position(one) >= end for one, end in ends.items()]):
            return
