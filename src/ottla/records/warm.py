"""`python -m ottla.records.warm`: compiles the kernels now, so that no user has to wait for it.

numba stores compiled code in `__pycache__` next to the kernels, or, if that cannot be written, in the user's cache
directory; `NUMBA_CACHE_DIR` overrides both. Run this as the user who will load them.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.records import (  # importing it compiles, so the clock must start before
        kernels,
        walk_kernel,  # noqa: F401
    )

    elapsed_s = time.perf_counter() - started_s
    sys.stdout.write(f"{len(kernels.KERNELS) + 1} record kernels ready in {elapsed_s:.1f} s\n")


if __name__ == "__main__":
    main()
