"""A broker of ours beside Apache Kafka: the same work for both, in turns, in one run. Begin at `__main__`.

`command` runs it, `lines` says what is measured and against which target, `sides` starts the brokers, `driver` and what
it runs (`raw`, `latency`, `clients`) are the load, each in a process of its own, and `report` tells what came out.
"""

import sys
from pathlib import Path

# Where what brings Kafka's jars lives.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
