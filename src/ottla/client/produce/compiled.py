"""The compiled kernels, loaded behind the producer's back.

They need numba and Arrow, which take half a second to load: far too long for a program that sends ten records, and
nothing for one that sends a million. So they are loaded in a thread once there is enough to do, and until then, or
without those packages, everything is done by the plain codec: the same bytes, more slowly.
"""

from __future__ import annotations

import threading
from types import ModuleType

from ottla.client.produce.partitioners import KeyHash


class _Loaded:
    columns: ModuleType | None = None
    is_begun = False


_loading = threading.Lock()


def columns() -> ModuleType | None:
    """`ottla.records.columns`, if it has been loaded."""
    return _Loaded.columns


def begin_loading() -> None:
    """Loads them in a thread. Again is no harm."""
    with _loading:
        if _Loaded.is_begun:
            return
        _Loaded.is_begun = True
    # Not a daemon: an interpreter that ends in the middle of loading compiled code may not end well.
    threading.Thread(target=load, name="ottla-load-kernels").start()


def load() -> bool:
    """Loads them now; whether that was possible."""
    try:
        from ottla.client.produce import kernels
        from ottla.records import columns
    except ImportError:
        return False
    KeyHash.function = staticmethod(kernels.partition_of_key)
    _Loaded.columns, _Loaded.is_begun = columns, True
    return True
