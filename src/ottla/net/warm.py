"""`python -m ottla.net.warm`: compile the kernel of the sender now, so that no broker has to later.

Where numba keeps it: see `ottla.records.warm`. Run this as the user who will run the broker.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.net import sending_kernel  # noqa: F401  # Importing is what compiles.

    sys.stdout.write(f"the sender's kernel is ready in {time.perf_counter() - started_s:.1f} s\n")


if __name__ == "__main__":
    main()
