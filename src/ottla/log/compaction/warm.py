"""`python -m ottla.log.compaction.warm`: compiles the kernels of compaction now, so that no broker has to wait for it.

`ottla.records.warm` says where numba stores them. Run this as the user who will run the broker.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.log.compaction import kernels  # importing it compiles, so the clock must start before

    elapsed_s = time.perf_counter() - started_s
    sys.stdout.write(f"{len(kernels.KERNELS)} compaction kernels ready in {elapsed_s:.1f} s\n")


if __name__ == "__main__":
    main()
