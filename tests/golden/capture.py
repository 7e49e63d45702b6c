"""Captures the golden bytes again: `python tests/golden/capture.py [records] [frames]`.

Makes what the capture needs (Kafka's jars, an environment with pinned Python clients under `.build`), then runs the
capture inside it. The captured files are committed, so tests need none of this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".build" / "golden-clients"
# The clients that write, and the codecs kafka-python finds only when they are installed beside it.
CLIENTS = (
    "kafka-python==3.0.12",
    "confluent-kafka==2.16.1",
    "aiokafka==0.14.0",
    "python-snappy==0.7.3",
    "lz4==4.4.5",
    "xxhash==4.1.0",
    "zstandard==0.25.0",
)


def main(arguments: list[str]) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "kafka_artifacts.py"), "--set=tools"], check=True)
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "clients.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(CLIENTS):
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *CLIENTS], check=True)
        stamp.write_text("\n".join(CLIENTS), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT / "tools")))}
    for part in arguments or ["records", "frames"]:
        subprocess.run([python, "-m", f"golden.capture_{part}"], env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
