"""Archives of the classes that Kafka's brokers load, for class data sharing: a broker starts in half the time with one.

python -m support.class_archive  (in tests/, with tools/ on the path)

An archive lies beside the jars it was made of, and is made once. Without it everything works as well.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from support.kafka_process import class_archive, stop, zookeeper, zookeeper_mode_broker
from support.waiting import wait_until

VERSION = "3.9.1"


def main() -> None:
    archive = class_archive(VERSION)
    if archive.exists():
        return
    arriving = archive.with_suffix(".arriving")
    with tempfile.TemporaryDirectory(prefix="ottla-archive-") as directory:
        place = Path(directory)
        with zookeeper(place / "zookeeper") as address:
            broker = zookeeper_mode_broker(place / "broker", address, 1, {}, archive_into=arriving)
            try:
                wait_until(lambda: (place / "broker" / "data" / "meta.properties").exists(), "the broker to start")
            finally:
                stop(broker.process)
    arriving.replace(archive)
    sys.stdout.write(f"Kafka {VERSION}: archived the classes of a broker\n")


if __name__ == "__main__":
    main()
