"""The compiled kernels, loaded behind the producer's back: see `background_load`.

Until they are there, or without the packages that they need, everything is done by the plain codec: the same bytes,
more slowly.
"""

from __future__ import annotations

from types import ModuleType

from ottla.base.background_load import BackgroundLoad
from ottla.client.produce.partitioners import KeyHash


class _Loaded:
    columns: ModuleType | None = None


def columns() -> ModuleType | None:
    """`ottla.records.columns`, if it has been loaded."""
    return _Loaded.columns


def load() -> bool:
    """Loads them now; whether that was possible."""
    try:
        from ottla.client.produce import kernels
        from ottla.records import columns
    except ImportError:
        return False
    KeyHash.function = staticmethod(kernels.partition_of_key)
    _Loaded.columns = columns
    return True


loading = BackgroundLoad(load)
