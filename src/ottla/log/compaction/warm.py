"""`python -m ottla.log.compaction.warm`: compile the kernels of compaction now, so that no broker waits for it later.

Where numba keeps them: see `ottla.records.warm`. Run this as the user who will run the broker.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.log.compaction import kernels  # Importing is what compiles: the clock must run before it.

    elapsed_s = time.perf_counter() - started_s
    sys.stdout.write(f"{len(kernels.KERNELS)} compaction kernels ready in {elapsed_s:.1f} s\n")


if __name__ == "__main__":
    main()
