"""`python -m differential`: see `differential`."""

from __future__ import annotations

import sys

from differential.command import main

if __name__ == "__main__":
    sys.exit(main())
