"""What a process has used, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MB: Final = 10**6


def cpu_s(pid: int) -> float:
    """CPU seconds of all its threads, the kernel's work for them included, to a hundredth."""
    # The name of the process comes second, in parentheses, and may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / MB


def pss_mb(pid: int) -> float:
    """Its share of memory, where pages that several processes hold are divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / MB
    raise RuntimeError(f"/proc/{pid}/smaps_rollup has no line for Pss")
