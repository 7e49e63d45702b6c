"""Records anew what the tools and clients print beside real Kafka, each version beside its own: `seen/*.txt`.

python -m compat.tools.record  (in tests/, with tools/ on the path)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from compat.tools.group_configs import run_group_configs
from compat.tools.kcat import run_kcat
from compat.tools.runs import VERSIONS, run
from compat.tools.transcripts import save


def main() -> None:
    os.environ["OTTLA_TEST_PEER"] = "kafka"
    for version in VERSIONS:
        with tempfile.TemporaryDirectory(prefix="ottla-record-") as place:
            save(version, run(version, Path(place)))
        sys.stdout.write(f"{version}: recorded\n")
    for name, run_them in (("group-configs", run_group_configs), ("kcat", run_kcat)):
        with tempfile.TemporaryDirectory(prefix="ottla-record-") as place:
            save(name, run_them(Path(place)))
        sys.stdout.write(f"{name}: recorded\n")


if __name__ == "__main__":
    main()
