"""Chooses the engine of compaction: the fast one if it can be loaded, otherwise the plain one."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Final

from ottla.log.compaction.engine import Engine

_logger = logging.getLogger(__name__)

_FAST_NEEDS: Final = ("numba", "numpy")


def missing_packages() -> list[str]:
    """The missing packages that the fast engine needs. Loads nothing."""
    return [name for name in _FAST_NEEDS if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # ValueError: sys.modules contains something else under its name
        return False


def load_engine() -> Engine:
    """Loads the fast engine, or the plain one if that fails for any reason: compaction must continue. May take seconds,
    so a worker calls it. Logs the fallback once, if it is called once."""
    from ottla.log.compaction import plain_engine

    try:
        from ottla.log.compaction import fast_engine  # this loads numba
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed; install it with `pip install 'ottla[columns]'`"
    except Exception as error:  # numba cannot write its cache, a broken LLVM, an unknown processor
        reason = f"{error}; if numba cannot write its cache, set NUMBA_CACHE_DIR to a folder that this user may write"
    else:
        return fast_engine
    _logger.warning("logs are compacted in plain Python, which is slower: %s", reason)
    return plain_engine
