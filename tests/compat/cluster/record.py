"""Records anew what the tools print of three brokers of real Kafka: `../tools/seen/cluster-3.9.1.txt`.

python -m compat.cluster.record  (in tests/, with tools/ on the path)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from compat.cluster.tool_runs import NAME, run
from compat.tools.transcripts import save


def main() -> None:
    os.environ["OTTLA_TEST_PEER"] = "kafka"
    with tempfile.TemporaryDirectory(prefix="ottla-record-") as place:
        save(NAME, run(Path(place)))
    sys.stdout.write(f"{NAME}: recorded\n")


if __name__ == "__main__":
    main()
