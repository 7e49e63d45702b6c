"""On what the figures were taken."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import confluent_kafka
from bench.broker.sides import KAFKA_VERSION

from ottla.client.produce import send_path

_TOUCHED_SHARE: Final = 0.8


def machine() -> dict[str, str | int | float]:
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) * 1024 / 1e9, 1),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "ottla": version("ottla") + (", compiled" if is_compiled() else ""),
        # The date tells builds apart: one without profile-guided optimisation takes up to 1.4 times as long.
        "python": f"{platform.python_version()} ({platform.python_build()[1]})",
        "uvloop": version("uvloop"),
        "crc32c": version("crc32c"),
        "kafka": KAFKA_VERSION,
        "java": (java.stderr or java.stdout).splitlines()[0],
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
    }


def is_compiled() -> bool:
    """Whether the producer's `send` is: docs/decisions/0014."""
    return not str(send_path.__file__).endswith(".py")


def touch_memory() -> float:
    """Uses most of the free memory once, and gives it back; how many GB.

    A virtual machine gets its memory from its host when it first touches it, at ten times the cost of writing to it:
    whoever comes first would pay for the page cache that all others then write to.
    """
    size = int(int(_field(Path("/proc/meminfo"), "MemAvailable").split()[0]) * 1024 * _TOUCHED_SHARE)
    touch = "import mmap, sys; mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE)"
    subprocess.run([sys.executable, "-c", touch, str(size)], check=True)
    return size / 1e9


def _field(file: Path, name: str) -> str:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
