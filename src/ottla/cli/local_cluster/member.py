"""The command of one member of a local cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_PROCESS: Final = "ottla.cli.member_process"
"""By its name, because it imports the whole command line, and so this package."""


def command(arguments: Sequence[str], grace_s: float = 0.0) -> list[str]:
    """What to execute. The process gets SIGTERM `grace_s` after its standard input has ended."""
    return [sys.executable, "-m", _PROCESS, str(grace_s), *arguments]
