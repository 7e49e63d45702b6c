"""Our connector for Spark beside Spark's own, on one broker of ours: the same work for both, in turns, in one run.

Begin at `__main__`. `lines` says what is measured and against which target, `session` keeps the broker, the topics and
the Sparks, each in a process of its own, and `program` is what runs in those.
"""

import sys
from pathlib import Path

# Where what brings Spark lives.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
