"""Chooses the engine of compaction: the fast one where it can be loaded, else the plain one."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Final

from ottla.log.compaction.engine import Engine

_logger = logging.getLogger(__name__)

_FAST_NEEDS: Final = ("numba", "numpy")


def missing_packages() -> list[str]:
    """What the fast engine needs and is not installed. Loads nothing."""
    return [name for name in _FAST_NEEDS if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # ValueError: something stands in its place in sys.modules
        return False


def load_engine() -> Engine:
    """The fast engine; the plain one where that cannot be loaded, whatever the reason: compaction must go on. May take
    seconds, so a worker calls it. Says so once, if it is called once."""
    from ottla.log.compaction import plain_engine

    try:
        from ottla.log.compaction import fast_engine  # From here on numba is loaded.
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed; install it with `pip install 'ottla[columns]'`"
    except Exception as error:  # numba that cannot write its cache, a broken LLVM, a processor it does not know
        reason = f"{error}; if numba cannot write its cache, set NUMBA_CACHE_DIR to a folder that this user may write"
    else:
        return fast_engine
    _logger.warning("logs are compacted in plain Python, which is slower: %s", reason)
    return plain_engine
