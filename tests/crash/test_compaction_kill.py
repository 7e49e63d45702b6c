"""A process that compacts is killed again and again, most often amid a swap; each time every key has its last value.

`OTTLA_KILLS` and `OTTLA_SEED` as in `test_log_kill`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from crash.appender import OPTIONS
from crash.compactor import CONFIG, PARTITION
from crash.test_log_kill import KILLS, SEED, SOURCES, TESTS
from ottla.base.clock import SystemClock
from ottla.log.directories import LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.records import iter_records


def values_by_key(directory: Path) -> dict[str, str]:
    """What a consumer ends with that reads the whole log, whose offsets must ascend."""
    directories = LogDirectories(LocalDisk(), SystemClock(), [directory], OPTIONS)
    directories.open(lambda _: CONFIG)
    log = directories.get(PARTITION)
    found: dict[str, str] = {}
    last_offset = -1
    if log is not None:
        for segment in log.segments:
            for record in iter_records(segment.log.read_at(0, segment.size)):
                assert record.offset > last_offset, f"offset {record.offset} after {last_offset}"
                last_offset = record.offset
                assert record.key is not None
                assert record.value is not None
                found[record.key.decode()] = record.value.decode()
    directories.close()
    (directory / ".kafka_cleanshutdown").unlink()  # the next one finds an unclean stop
    return found


def test_every_key_keeps_its_last_value_when_compaction_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    kept: dict[str, str] = {}
    compactions: Counter[str] = Counter()
    with subprocess.Popen(
        [sys.executable, "-m", "crash.compactor", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCES), str(TESTS)))},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seed in range(SEED, SEED + KILLS // 2):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            begun: dict[str, list[str]] = {}
            for line in process.stdout:
                message = json.loads(line)
                assert "error" not in message, f"seed {seed}: {message}"
                if "begun" in message:
                    key, value = message["begun"]
                    begun.setdefault(key, []).append(value)
                elif "kept" in message:
                    kept |= message["kept"]
                    begun = {}
                elif "compacted" in message:
                    compactions["done"] += 1
                else:
                    assert message["done"] in (-9, 0), f"seed {seed}: {message}"
                    compactions["killed"] += message["done"] == -9
                    break
            found = values_by_key(directory)
            for key, value in kept.items():
                allowed = [value, *begun.get(key, ())]
                assert found.get(key) in allowed, f"seed {seed}: {key} is {found.get(key)}, not one of {allowed}"
            kept = found
        process.stdin.close()
    assert compactions["killed"] > KILLS // 4, compactions
    assert compactions["done"] > KILLS // 4, compactions
