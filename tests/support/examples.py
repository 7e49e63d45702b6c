"""How many examples property tests draw: `OTTLA_EXAMPLES` times the number that a test names.

A run of the suite draws others each time, so few are enough there; `make soak` draws many times as many.
"""

from __future__ import annotations

import os

_FACTOR = float(os.environ.get("OTTLA_EXAMPLES", "1"))
DEFAULT = 50
"""Of a test that names no number."""


def examples(count: int) -> int:
    return max(1, round(count * _FACTOR))
