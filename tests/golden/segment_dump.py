"""What Kafka's own dump tool reads in the files of a log: a decoder that is independent of ours.

`dump` runs the tool once for many files; the functions behind it take apart what it says of one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.kafka_process import java_command


@dataclass(frozen=True, slots=True)
class Dump:
    """What the tool printed: for each file, and what it complained of."""

    texts: Mapping[Path, str]
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record as the tool shows it. Key and value are text; None where there is none."""

    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]


Fields = dict[str, Any]


def dump(version: str, files: Sequence[Path], *flags: str) -> Dump:
    """Reads the files with the tool of that version; `--print-data-log` unless flags say something else."""
    tool = "kafka.tools.DumpLogSegments" if version == "3.9.1" else "org.apache.kafka.tools.DumpLogSegments"
    command = java_command(version, tool, *(flags or ("--print-data-log",)), "--files", ",".join(map(str, files)))
    result = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    complaints = [line for line in result.stderr.splitlines() if not line.startswith(("log4j:", "SLF4J:"))]
    if result.returncode != 0 or any("Exception" in line for line in complaints):
        raise RuntimeError(f"Kafka's dump tool failed:\n{result.stderr}")
    texts = {}
    for section in re.split(r"^Dumping ", result.stdout, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        texts[Path(name)] = text
        complaints += [line for line in text.splitlines() if line.startswith("Found ") or "isvalid: false" in line]
    return Dump(texts, tuple(complaints))


_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<producer_id>-?\d+) "
    r"producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+) "
    r"isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+) deleteHorizonMs: (?P<horizon>\S+) "
    r"position: (?P<position>\d+) (?P<time>CreateTime|LogAppendTime|NoTimestampType): (?P<max_timestamp_ms>-?\d+) "
    r"size: (?P<size>\d+) magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)"
)
_MESSAGE = re.compile(
    r"^offset: (?P<last_offset>\d+) position: (?P<position>\d+) "
    r"(?P<time>CreateTime|LogAppendTime|NoTimestampType): (?P<max_timestamp_ms>-?\d+) "
    r"size: (?P<size>\d+) magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)"
)
_MARKER = re.compile(
    r"^\| offset: (?P<offset>\d+) \w+: (?P<timestamp_ms>\d+) .*"
    r"endTxnMarker: (?P<kind>COMMIT|ABORT) coordinatorEpoch: (?P<epoch>\d+)"
)
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) \w+: (?P<timestamp_ms>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>[^]]*)\]"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$"
)
_FIELD = re.compile(r"(\w+): (-?\d+|OptionalLong\[(\d+)\]|OptionalLong\.empty)")


def batches_and_markers(segment: Path, text: str) -> tuple[list[Fields], list[Fields]]:
    """The headers of a segment's batches, and its transaction markers."""
    batches: list[Fields] = []
    markers: list[Fields] = []
    for line in text.splitlines():
        if found := _BATCH.match(line):
            if found["valid"] != "true":
                raise RuntimeError(f"{segment}: Kafka's dump tool finds a batch not valid: {line}")
            horizon = re.search(r"\d+", found["horizon"])
            batches.append(
                {
                    name: int(found[name])
                    for name in (
                        "position",
                        "size",
                        "magic",
                        "base_offset",
                        "last_offset",
                        "count",
                        "base_sequence",
                        "producer_id",
                        "producer_epoch",
                        "leader_epoch",
                        "max_timestamp_ms",
                        "crc",
                    )
                }
                | {
                    "codec": found["codec"].lower(),
                    "timestamp_type": found["time"],
                    "transactional": found["transactional"] == "true",
                    "control": found["control"] == "true",
                    "delete_horizon_ms": int(horizon[0]) if horizon else None,
                }
            )
        elif found := _MESSAGE.match(line):
            if found["valid"] != "true":
                raise RuntimeError(f"{segment}: Kafka's dump tool finds a message not valid: {line}")
            batches.append(
                {
                    name: int(found[name])
                    for name in ("position", "size", "magic", "last_offset", "max_timestamp_ms", "crc")
                }
                | {"codec": found["codec"].lower(), "timestamp_type": found["time"]}
            )
        elif found := _MARKER.match(line):
            markers.append(
                {
                    "offset": int(found["offset"]),
                    "timestamp_ms": int(found["timestamp_ms"]),
                    "commit": found["kind"] == "COMMIT",
                    "coordinator_epoch": int(found["epoch"]),
                }
            )
    return batches, markers


def records(text: str) -> list[DumpedRecord]:
    """The data in a segment, without markers. Keys and values must be plain text on one line."""
    found = (_RECORD.match(line) for line in text.splitlines() if "endTxnMarker" not in line)
    return [
        DumpedRecord(
            offset=int(form["offset"]),
            timestamp_ms=int(form["timestamp_ms"]),
            key=form["key"],
            value=form["value"],
            key_size=int(form["key_size"]),
            value_size=int(form["value_size"]),
            sequence=int(form["sequence"]),
            header_keys=tuple(form["header_keys"].split(",")) if form["header_keys"] else (),
        )
        for form in found
        if form
    ]


def rows(text: str) -> list[dict[str, int]]:
    """The lines of an index, a transaction index or a producer snapshot: the tool's names, and numbers; -1 for none."""
    lines = (_FIELD.findall(line) for line in text.splitlines())
    return [{name: _number(value, inner) for name, value, inner in line} for line in lines if line]


def _number(value: str, inner: str) -> int:
    return int(inner) if inner else -1 if value == "OptionalLong.empty" else int(value)
