"""`python -m ottla.client.produce.warm`: compile the producer's kernels now, so that no user waits for it later.

Where numba keeps them: see `ottla.records.warm`.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.client.produce import kernels  # Importing is what compiles: the clock must run before it.

    elapsed_s = time.perf_counter() - started_s
    sys.stdout.write(f"{len(kernels.KERNELS)} kernels of producers ready in {elapsed_s:.1f} s\n")


if __name__ == "__main__":
    main()
