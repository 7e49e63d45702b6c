"""Archives of the classes that Kafka's brokers load, for class data sharing: a broker starts in half the time with one.

python -m support.class_archive  (in tests/, with tools/ on the path)

An archive is stored with the jars from which it was made, and is made once. Everything works without it as well.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.controllers import admin_of
from support.kafka_process import Broker, class_archive, kraft_broker, stop, zookeeper, zookeeper_mode_broker

Archiving = Callable[[Path, Path], None]
"""Runs a broker in a directory, and archives its classes into a file."""


def archive_zookeeper_mode(place: Path, archive: Path) -> None:
    with zookeeper(place / "zookeeper") as address:
        _use_and_stop(zookeeper_mode_broker(place / "broker", address, 1, {}, archive_into=archive))


def archive_kraft(place: Path, archive: Path) -> None:
    _use_and_stop(kraft_broker(place / "broker", {}, archive_into=archive))


def _use_and_stop(broker: Broker) -> None:
    try:
        admin_of(broker)
    finally:
        stop(broker.process)


VERSIONS: dict[str, Archiving] = {"3.9.1": archive_zookeeper_mode, "4.3.1": archive_kraft}


def main() -> None:
    missing = [version for version in VERSIONS if not class_archive(version).exists()]
    with ThreadPoolExecutor() as threads:
        for version in threads.map(make_archive, missing):
            sys.stdout.write(f"Kafka {version}: archived the classes of a broker\n")


def make_archive(version: str) -> str:
    archive = class_archive(version)
    arriving = archive.with_suffix(".arriving")
    with tempfile.TemporaryDirectory(prefix="ottla-archive-") as directory:
        VERSIONS[version](Path(directory), arriving)
    arriving.replace(archive)
    return version


if __name__ == "__main__":
    main()
