"""Records anew what consumers and tools print about groups beside real Kafka: `../tools/seen/groups-*.txt`.

python -m compat.groups.record [a run's name ...]  (in tests/, with tools/ on the path)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from compat.groups.runs import RUNS, run
from compat.tools.transcripts import save


def main() -> None:
    os.environ["OTTLA_TEST_PEER"] = "kafka"
    for name in sys.argv[1:] or RUNS:
        with tempfile.TemporaryDirectory(prefix="ottla-record-") as place:
            transcript = run(name, Path(place))
        for step, said in transcript.items():
            if "\nthrew " in f"\n{said.text}" or said.exit == -1:
                raise RuntimeError(f"{name}: {step!r} went wrong, and is not to be compared with:\n{said}")
        save(name, transcript)
        sys.stdout.write(f"{name}: recorded\n")


if __name__ == "__main__":
    main()
