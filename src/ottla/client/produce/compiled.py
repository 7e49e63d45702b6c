"""The compiled kernels, loaded in the background: see `background_load`.

Until they are loaded, or without the packages that they need, plain Python produces the same bytes, but more slowly.
Loading takes most of a second, so it starts when plain Python has taken nearly as long: a program that sends a million
records and ends is faster without kernels.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from ottla.base.background_load import BackgroundLoad
from ottla.client.produce.partitioners import KeyHash


class _Loaded:
    columns: ModuleType | None = None


def columns() -> ModuleType | None:
    """`ottla.records.columns`, if it is loaded."""
    return _Loaded.columns


def load() -> bool:
    """Loads the kernels now; returns whether that was possible."""
    try:
        from ottla.client.produce import kernels
        from ottla.records import columns
    except ImportError:
        return False
    KeyHash.function = staticmethod(kernels.partition_of_key)
    _Loaded.columns = columns
    return True


loading = BackgroundLoad(load)

LOAD_AFTER_S: Final = 0.4


class _Spent:
    plainly_s = 0.0


def spend(plainly_s: float) -> None:
    """Counts the time that plain Python took for work that kernels could do; starts loading them at a limit."""
    _Spent.plainly_s += plainly_s
    if _Spent.plainly_s >= LOAD_AFTER_S:
        loading.begin()
