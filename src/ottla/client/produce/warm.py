"""`python -m ottla.client.produce.warm`: compiles the producer's kernels now, so that no user has to wait for it.

`ottla.records.warm` says where numba stores them.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.client.produce import kernels  # importing it compiles, so the clock must start before

    elapsed_s = time.perf_counter() - started_s
    sys.stdout.write(f"{len(kernels.KERNELS)} kernels of producers ready in {elapsed_s:.1f} s\n")


if __name__ == "__main__":
    main()
