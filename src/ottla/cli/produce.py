"""`ottla produce`: send lines as records."""

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
"""The record size is limited by the topic, not by this command."""


class Codec(StrEnum):
    """Compression codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Which replicas must have a record before it is acknowledged."""

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
        typer.Option(
            "--file", "-f", exists=True, dir_okay=False, help="Read from this file instead of standard input."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", help="Split each line into key and value at this separator (default: no keys)."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add this header to every record. Repeatable."),
    ] = None,
    line_headers: Annotated[
        bool,
        typer.Option("--headers", help="Read headers from the start of each line: name=value,… followed by a tab."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='Read one JSON object per line: "value", and optionally "key", "headers", "partition", "timestamp".',
        ),
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-P", min=0, help="Send to this partition (default: chosen by key).")
    ] = None,
    compression: Annotated[
        Codec, typer.Option("--compression", "-z", help="Compress batches with this codec.")
    ] = Codec.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Wait for all in-sync replicas, for the leader only, or not at all.")
    ] = Acks.ALL,
    tombstones: Annotated[
        bool, typer.Option("--null-if-empty", "-Z", help="Send an empty value as null (a tombstone).")
    ] = False,
) -> None:
    """Send each line of the input as a record to a topic, until the end of the input (Ctrl-D).

    The topic is created if it does not exist and the broker has auto.create.topics.enable=true.

    [bold]Examples[/]

    echo hello | ottla produce orders

    echo "customer-7:3 apples" | ottla produce orders --key-separator :

    ottla produce orders --file orders.jsonl --json --compression zstd
    """
    from ottla.cli.record_formats import LineError, parse_headers, read_json_line, read_text_line

    if key_separator == "":
        raise CommandError("--key-separator must not be empty. Use for example --key-separator :")
    separator = None if key_separator is None else key_separator.encode()
    try:
        common = parse_headers(",".join(headers or []))
    except LineError as error:
        raise CommandError(f"--header: {error}") from None

    def read(line: bytes) -> NewRecord:
        record = read_json_line(line) if as_json else read_text_line(line, separator, b"\t" if line_headers else None)
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
                await producer.partitions_for(topic)  # fail before the user types anything
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
        note(f"Type a record for {topic} and press Enter. Press Ctrl-D to finish.")
    asyncio.run(work())


def _without_metadata(topic: str) -> str:
    return (
        f"topic '{topic}' does not exist and the broker does not create it, or the broker does not respond; "
        f"retrying for {PATIENCE_MS // 1000} s"
    )


def _progress(producer: AsyncProducer) -> Progress:
    metrics = producer.metrics()
    if not metrics["batches_unfinished"]:
        return Progress(0, None)
    why = producer.hindrance
    reason = (
        f"records have not been delivered yet: {why}" if why else "the broker has not acknowledged the last records yet"
    )
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
                raise CommandError(f"line {count + 1}: {error}. Sent {counted(count, 'line')} before it") from None
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
            await producer.flush()  # show errors to an interactive user right away
        now_s = time.monotonic()
        if now_s - told_s >= _PROGRESS_EVERY_S and sys.stderr.isatty():
            told_s = now_s
            sys.stderr.write(f"\r{counted(count, 'record')}, {count / (now_s - begun_s):,.0f}/s ")
    await producer.flush()
    if told_s > begun_s:
        note(f"\r{counted(count, 'record')} sent to topic {topic}.          ")
