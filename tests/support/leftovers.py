"""What a failed test leaves behind: clients, loops and sockets that it had no chance to close.

Its traceback keeps them alive until the next test. If they were collected there, Python would warn of each, warnings
are errors, and tests that are fine would fail.
"""

from __future__ import annotations

import gc
import sys


def forget_failed_test() -> None:
    """Collects what a failed test has left, while no test runs that could be blamed. Its own failure says enough."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # where pytest keeps the failure
        if hasattr(sys, name):
            delattr(sys, name)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
