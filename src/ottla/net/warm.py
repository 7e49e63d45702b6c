"""`python -m ottla.net.warm`: compiles the sender's kernel in advance, so that brokers need not.

`ottla.records.warm` says where numba stores it. Run this as the user that runs the broker.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    started_s = time.perf_counter()
    from ottla.net import sending_kernel  # noqa: F401  # Importing is what compiles.

    sys.stdout.write(f"The sender's kernel was ready after {time.perf_counter() - started_s:.1f} s.\n")


if __name__ == "__main__":
    main()
