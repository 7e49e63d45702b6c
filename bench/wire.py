"""The wire codec beside kio's and kafka-python's: the same messages, the same bytes, in one run.

Run: python bench/wire.py [--passes 3] [--rounds 20] [--sample-ms 3] [--markdown bench/results/wire.md]

Every message is built and written by ours; the others get theirs by reading those bytes, and before anything is timed
each must write what it read back to the very same bytes. Each codec is called in the way that is fastest for it, looked
up and compiled beforehand: kio's native reader and its writer into a `BytesIO`, the functions that kafka-python
generates, ours by its public calls. Samples of a few milliseconds of CPU time are taken in turns, in several passes
through all rows; the best of each counts.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Final

import kafka.protocol.consumer.fetch
import kafka.protocol.metadata.api_versions
import kafka.protocol.metadata.metadata
import kafka.protocol.producer.produce
from kafka.protocol.schemas.fields.codecs import EncodeBufferPool
from kio import _kio_native
from kio.serial import entity_reader, entity_writer
from rich.console import Console
from rich.table import Table

from ottla.base.ids import Uuid
from ottla.wire.codec import decode, encode, encode_chunks
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeature
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataResponse,
    MetadataTopicResponse,
)
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from ottla.wire.registry import apis
from ottla.wire.schema import Message

WRITE_TARGET: Final = 4.0
"""How many times as fast as kio's writer ours must be."""

READ_TARGET: Final = 3.0
"""How many times the time of kio's native reader ours may take."""

KIB, MIB = 2**10, 2**20

Work = Callable[[], object]

PYTHON_CLASSES: Final = {
    FetchRequest: kafka.protocol.consumer.fetch.FetchRequest,
    FetchResponse: kafka.protocol.consumer.fetch.FetchResponse,
    MetadataResponse: kafka.protocol.metadata.metadata.MetadataResponse,
    ProduceRequest: kafka.protocol.producer.produce.ProduceRequest,
    ProduceResponse: kafka.protocol.producer.produce.ProduceResponse,
    ApiVersionsResponse: kafka.protocol.metadata.api_versions.ApiVersionsResponse,
}

KIO_ROOMS: Final = {
    FetchRequest: ("fetch", "request"),
    FetchResponse: ("fetch", "response"),
    MetadataResponse: ("metadata", "response"),
    ProduceRequest: ("produce", "request"),
    ProduceResponse: ("produce", "response"),
    ApiVersionsResponse: ("api_versions", "response"),
}


def topic_id(number: int) -> Uuid:
    return Uuid(bytes(range(number, number + 16)))


def fetch_request() -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * MIB,
        session_id=1_234_567,
        session_epoch=17,
        topics=[
            FetchTopic(
                topic=f"orders-{topic}",
                topic_id=topic_id(topic),
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=5,
                        fetch_offset=9_000_000_000 + index,
                        log_start_offset=1_000 * index,
                        partition_max_bytes=MIB,
                    )
                    for index in range(5)
                ],
            )
            for topic in range(2)
        ],
        rack_id="rack-a",
    )


def fetch_response(partitions: int, records: bytes) -> FetchResponse:
    return FetchResponse(
        session_id=1_234_567,
        responses=[
            FetchTopicResponse(
                topic="orders-0",
                topic_id=topic_id(0),
                partitions=[
                    FetchPartitionResponse(
                        partition_index=index,
                        high_watermark=9_000_000_000 + index,
                        last_stable_offset=9_000_000_000,
                        log_start_offset=1_000 * index,
                        records=records,
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def metadata_response() -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataBroker(node_id=node, host=f"broker-{node}.example.org", port=9092) for node in range(3)],
        cluster_id="an-ottla-cluster",
        controller_id=1,
        topics=[
            MetadataTopicResponse(
                name=f"orders-{topic}",
                topic_id=topic_id(topic),
                partitions=[
                    MetadataPartitionResponse(
                        partition_index=index,
                        leader_id=index % 3,
                        leader_epoch=5,
                        replica_nodes=[index % 3, (index + 1) % 3, (index + 2) % 3],
                        isr_nodes=[index % 3, (index + 1) % 3, (index + 2) % 3],
                    )
                    for index in range(100)
                ],
            )
            for topic in range(10)
        ],
    )


def produce_request() -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceTopic(
                name="orders-0",
                topic_id=topic_id(0),
                partition_data=[ProducePartition(index=index, records=bytes(KIB)) for index in range(10)],
            )
        ],
    )


def produce_response() -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceTopicResponse(
                name="orders-0",
                topic_id=topic_id(0),
                partition_responses=[
                    ProducePartitionResponse(
                        index=index, base_offset=9_000_000_000 + index, log_start_offset=1_000 * index
                    )
                    for index in range(10)
                ],
            )
        ],
    )


def api_versions_response() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=api.versions.low, max_version=api.versions.high)
            for key, api in sorted(apis().items())
        ],
        supported_features=[SupportedFeature(name="metadata.version", min_version=1, max_version=25)],
    )


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    writes: bool
    message: Message
    version: int
    in_chunks: bool = False
    required: bool = False


def cases() -> list[Case]:
    fetch_reply = fetch_response(10, bytes(200))
    return [
        Case("read Fetch request, 10 partitions", False, fetch_request(), 18, required=True),
        Case("read Fetch request, 10 partitions", False, fetch_request(), 11, required=True),
        Case("write Metadata response, 1,000 partitions", True, metadata_response(), 13, required=True),
        Case("write Metadata response, 1,000 partitions", True, metadata_response(), 8),
        Case("write Fetch response, 10 partitions of 200 B", True, fetch_reply, 18, in_chunks=True, required=True),
        Case("write Fetch response, 10 partitions of 200 B", True, fetch_reply, 11, in_chunks=True),
        Case("write Fetch response, 1 partition of 1 MiB", True, fetch_response(1, bytes(MIB)), 18, in_chunks=True),
        Case("read Metadata response, 1,000 partitions", False, metadata_response(), 13),
        Case("read Metadata response, 1,000 partitions", False, metadata_response(), 8),
        Case("read Produce request, 10 partitions of 1 KiB", False, produce_request(), 13),
        Case("read Fetch response, 10 partitions of 200 B", False, fetch_reply, 18),
        Case("write Fetch request, 10 partitions", True, fetch_request(), 18),
        Case("write Produce response, 10 partitions", True, produce_response(), 13),
        Case("read ApiVersions response", False, api_versions_response(), 4),
        Case("write ApiVersions response", True, api_versions_response(), 4),
    ]


def with_every_slot_set(value: Any) -> Any:
    """What kafka-python reads leaves absent tagged fields unset, and its writer would look them up the slow way."""
    for name in value._struct.fields:
        held = getattr(value, name)
        setattr(value, name, held)
        for inner in held if isinstance(held, list) else [held]:
            if hasattr(inner, "_struct"):
                with_every_slot_set(inner)
    return value


def equal_or_stop(case: Case, codec: str, wrote: object, expected: bytes) -> None:
    if wrote != expected:
        sys.exit(f"{codec} does not agree with ours on {type(case.message).__name__} v{case.version}")


def our_work(case: Case, data: bytes) -> Work:
    message, version, value = type(case.message), case.version, case.message
    equal_or_stop(case, "ottla", encode(decode(message, version, data), version), data)
    if not case.writes:
        return lambda: decode(message, version, data)
    if case.in_chunks:
        equal_or_stop(case, "ottla", b"".join(encode_chunks(value, version)), data)
        return lambda: encode_chunks(value, version)
    return lambda: encode(value, version)


def kio_work(case: Case, data: bytes) -> Work:
    api, side = KIO_ROOMS[type(case.message)]
    module = import_module(f"kio.schema.{api}.v{case.version}.{side}")
    entity = getattr(module, type(case.message).__name__)
    if entity_reader is not _kio_native.entity_reader:
        sys.exit("this kio does not read natively")
    read, write = entity_reader(entity), entity_writer(entity)
    value, _ = read(data, 0)

    def written() -> bytes:
        buffer = io.BytesIO()
        write(buffer, value)
        return buffer.getvalue()

    equal_or_stop(case, "kio", written(), data)
    return written if case.writes else lambda: read(data, 0)


def python_work(case: Case, data: bytes) -> Work:
    cls = PYTHON_CLASSES[type(case.message)]
    flexible = cls.flexible_version_q(case.version)
    read = cls._struct.compiled_decode_from(case.version, compact=flexible, tagged=flexible, data_class=cls)
    write = cls._struct.compiled_encode_into(case.version, compact=flexible, tagged=flexible)
    view = memoryview(data)
    value = with_every_slot_set(read(view, 0)[0])

    def written() -> bytes:
        with EncodeBufferPool.acquire() as out:
            write(value, out)
            result: bytes = out.result()
            return result

    equal_or_stop(case, "kafka-python", written(), data)
    return written if case.writes else lambda: read(view, 0)


CODECS: Final = (our_work, kio_work, python_work)


def calls_per_sample(work: Work, sample_s: float) -> int:
    """Also what warms a codec up."""
    calls = 1
    while (taken_s := sample(work, calls)) < sample_s / 4:
        calls *= 2
    return max(1, round(calls * sample_s / taken_s))


def sample(work: Work, calls: int) -> float:
    repetitions = range(calls)
    start = time.thread_time()
    for _ in repetitions:
        work()
    return time.thread_time() - start


def best_times_us(works: list[Work], rounds: int, sample_s: float) -> list[float]:
    calls = [calls_per_sample(work, sample_s) for work in works]
    best = [float("inf")] * len(works)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for index, work in enumerate(works):
                best[index] = min(best[index], sample(work, calls[index]) / calls[index] * 1e6)
    finally:
        gc.enable()
    return best


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    size: int
    ours_us: float
    kio_us: float
    python_us: float

    @property
    def target_met(self) -> bool:
        beside_kio = WRITE_TARGET * self.ours_us if self.case.writes else self.ours_us / READ_TARGET
        return beside_kio <= self.kio_us and self.ours_us < self.python_us

    def cells(self) -> list[str]:
        return [
            self.case.title,
            f"v{self.case.version}",
            f"{self.size:,}",
            f"{self.ours_us:,.1f}",
            f"{self.kio_us:,.1f}",
            f"{self.python_us:,.1f}",
            f"{self.kio_us / self.ours_us:.2f}x",
            f"{self.python_us / self.ours_us:.2f}x",
            ("met" if self.target_met else "MISSED") + (" *" if self.case.required else ""),
        ]


def measure(case: Case, rounds: int, sample_s: float) -> Row:
    data = encode(case.message, case.version)
    return Row(case, len(data), *best_times_us([make(case, data) for make in CODECS], rounds, sample_s))


def better(one: Row, other: Row) -> Row:
    return Row(
        one.case,
        one.size,
        min(one.ours_us, other.ours_us),
        min(one.kio_us, other.kio_us),
        min(one.python_us, other.python_us),
    )


HEADINGS: Final = [
    "",
    "version",
    "bytes",
    "ottla µs",
    "kio µs",
    "kafka-python µs",
    "kio ÷ ours",
    "kafka-python ÷ ours",
    "target",
]


def facts(passes: int, rounds: int, sample_ms: float) -> list[str]:
    codecs = f"kio {installed_version('kio')} (native reader), kafka-python {installed_version('kafka-python')}"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return [
        f"Python {platform.python_version()} on {machine}; {codecs}.",
        f"The best of {passes} passes of {rounds} rounds of {sample_ms:g} ms of CPU time, the codecs in turns, garbage "
        "collection off.",
        "÷: how many times as fast as theirs ours is. Fetch responses are written by ours as "
        "chunks that refer to large records, by the others as one copy.",
        f"Target of writing: {WRITE_TARGET:g} times as fast as kio; of reading: at most {READ_TARGET:g} times the time "
        f"of kio's native reader (at least {1 / READ_TARGET:.2f}x); of both: ahead of kafka-python. "
        "The asterisk marks what the project has promised.",
    ]


def markdown(rows: list[Row], lines: list[str], command: str) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    table = [line(HEADINGS), line(["---", "---", *["---:"] * 6, "---"]), *(line(row.cells()) for row in rows)]
    return "\n".join(["# Wire codec", "", f"    {command}", "", *table, "", "\n\n".join(lines), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--passes", type=int, default=3, help="through all rows, so that no slow moment hits one alone")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sample-ms", type=float, default=3)
    parser.add_argument("--only", default="", help="only the rows whose title contains this")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in case.title]
    passes = [
        [measure(case, options.rounds, options.sample_ms / 1e3) for case in chosen] for _ in range(options.passes)
    ]
    rows = [reduce(better, same) for same in zip(*passes, strict=True)]
    table = Table(title="Wire codec", title_justify="left")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 2 <= index <= 7 else "left")
    for row in rows:
        table.add_row(*row.cells(), style="" if row.target_met else "red")
    lines = facts(options.passes, options.rounds, options.sample_ms)
    console = Console(width=max(Console().width, 140))
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, markup=False)
    if options.markdown:
        times = f"--passes {options.passes} --rounds {options.rounds} --sample-ms {options.sample_ms:g}"
        command = f"python bench/wire.py {times}"
        options.markdown.write_text(markdown(rows, lines, command))


if __name__ == "__main__":
    main()
