"""`ottla produce`: lines in, records out."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.commands import on_cluster
from ottla.cli.completion import complete_topics
from ottla.cli.output import counted, note
from ottla.cli.session import PATIENCE_MS, CommandError, reach, settings_of
from ottla.cli.waiting import Progress, telling_why

if TYPE_CHECKING:
    from ottla.cli.record_formats import NewRecord
    from ottla.client.produce import AsyncProducer

_PROGRESS_EVERY_S: Final = 1.0
_ANY_SIZE: Final = 128 * 1024 * 1024
"""How large a record may be is for the topic to say."""


class Codec(StrEnum):
    """What batches can be compressed with."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who must have a record before it counts as sent."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


@on_cluster
def produce(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=complete_topics),
    ],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read this file, not standard input."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", help="What stands between key and value on a line; none: no keys."),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record."),
    ] = None,
    line_headers: Annotated[
        bool,
        typer.Option("--headers", help="Each line begins with its own headers, name=value,… and a tab."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help='A JSON object a line, with "value" and perhaps "key", "headers", "partition", "timestamp".'
        ),
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-P", min=0, help="The partition; else it goes by the key.")
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")] = Codec.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Wait for all replicas in sync, for the leader alone, or for nobody.")
    ] = Acks.ALL,
    tombstones: Annotated[
        bool, typer.Option("--null-if-empty", "-Z", help="An empty value is null: it deletes the key when compacted.")
    ] = False,
) -> None:
    """Send lines as records to a topic. Ends with the input (Ctrl-D).

    A topic that does not exist is made, if the broker is configured to.

    [bold]Examples[/]

    echo hello | ottla produce orders

    echo "customer-7:3 apples" | ottla produce orders --key-separator :

    ottla produce orders --file orders.jsonl --json --compression zstd
    """
    from ottla.cli.record_formats import LineError, parse_headers, read_json_line, read_plain_line

    separator = None if key_separator is None else key_separator.encode()
    try:
        common = parse_headers(",".join(headers or []))
    except LineError as error:
        raise CommandError(f"--header: {error}") from None

    def read(line: bytes) -> NewRecord:
        record = read_json_line(line) if as_json else read_plain_line(line, separator, b"\t" if line_headers else None)
        record.headers = (*common, *record.headers)
        record.partition = partition if record.partition is None else record.partition
        if tombstones and not record.value:
            record.value = None
        return record

    async def work() -> None:
        from ottla.client.produce import AsyncProducer

        await reach(settings)
        async with AsyncProducer(settings) as producer:
            async with telling_why(lambda: Progress(0, _without_metadata(topic))):
                await producer.partitions_for(topic)  # before anybody types in vain
            descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
            try:
                async with telling_why(lambda: _progress(producer)):
                    await _send_lines(producer, topic, descriptor, read)
            finally:
                if file is not None:
                    os.close(descriptor)

    from ottla.client.config import ProducerConfig

    settings = settings_of(context).client_settings(
        ProducerConfig,
        {
            "acks": acks.value,
            "compression.type": compression.value,
            "max.block.ms": PATIENCE_MS,
            "max.request.size": _ANY_SIZE,
            "buffer.memory": _ANY_SIZE,
        },
    )
    if file is None and sys.stdin.isatty():
        note(f"Type a record for {topic} and press Enter; Ctrl-D ends.")
    asyncio.run(work())


def _without_metadata(topic: str) -> str:
    return (
        f"topic '{topic}' does not exist and the broker does not create it, or the broker does not answer; "
        f"trying for {PATIENCE_MS // 1000} s"
    )


def _progress(producer: AsyncProducer) -> Progress:
    metrics = producer.metrics()
    if not metrics["batches_unfinished"]:
        return Progress(0, None)
    why = producer.hindrance
    reason = f"records are not delivered yet: {why}" if why else "the broker has not acknowledged the last records yet"
    return Progress(metrics["records"], reason)


async def _send_lines(producer: AsyncProducer, topic: str, descriptor: int, read: Callable[[bytes], NewRecord]) -> None:
    from ottla.cli.input_lines import read_lines
    from ottla.cli.record_formats import LineError

    count = 0
    begun_s = told_s = time.monotonic()
    async for lines in read_lines(descriptor):
        for line in lines:
            try:
                record = read(line)
            except LineError as error:
                await producer.flush()
                raise CommandError(f"line {count + 1}: {error}; sent {counted(count, 'line')} before it") from None
            await producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers or None,
                partition=record.partition,
                timestamp=record.timestamp_ms,
            )
            count += 1
        if os.isatty(descriptor):
            await producer.flush()  # who types wants to know now what went wrong
        now_s = time.monotonic()
        if now_s - told_s >= _PROGRESS_EVERY_S and sys.stderr.isatty():
            told_s = now_s
            sys.stderr.write(f"\r{counted(count, 'record')}, {count / (now_s - begun_s):,.0f}/s ")
    await producer.flush()
    if told_s > begun_s:
        note(f"\r{counted(count, 'record')} sent to {topic}.          ")
