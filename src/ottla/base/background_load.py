"""Loads slow modules in a background thread, once there is enough work to justify it.

Compiled kernels need numba and Arrow, which take half a second to load: too long for a program that sends ten records,
nothing for one that sends a million. But a busy thread hardly lets another thread make progress: half a second becomes
five. So code with a lot of work waits a moment for a load in progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Final, TypeVar

T = TypeVar("T")

_logger = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long to wait for a load in progress."""


def load_apart(load: Callable[[], T]) -> T:
    """Calls `load` in another thread, and returns or raises what it does. A Ctrl-C during an import would leave numba
    or NumPy half loaded and unusable in this process; here it only ends the wait."""
    if threading.current_thread() is not threading.main_thread():  # signals are handled only in the main thread
        return load()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(load())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="ottla-load-kernels").start()
    return outcome.result()


class BackgroundLoad:
    """A load that happens at most once. Thread-safe."""

    def __init__(self, load: Callable[[], object], needs: tuple[str, ...] = ("numba", "pyarrow")) -> None:
        """`load` does the imports. If one of the packages it needs is not installed, nothing waits for it."""
        self._load = load
        self._needs = needs
        self._lock = threading.RLock()  # reentrant, because a signal handler may interrupt `begin` and call it
        self._is_begun = False
        self._is_over = threading.Event()

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    @property
    def is_going_on(self) -> bool:
        return self._is_begun and not self._is_over.is_set()

    def begin(self) -> None:
        """Starts loading in a thread. Idempotent."""
        if self._is_begun:
            return
        try:
            with self._lock:
                if self._is_begun:
                    return
                self._is_begun = True
            if any(find_spec(name) is None for name in self._needs):
                self._is_over.set()
                return
            # Not a daemon thread: an interpreter that exits while compiled code is loading may crash.
            threading.Thread(target=self._run, name="ottla-load-kernels").start()
        except Exception as error:  # for example, no thread can be started
            self._is_over.set()
            _logger.warning("compiled kernels cannot be loaded, slower code is used instead: %s", error)
        except BaseException:  # Ctrl-C: the load may not have begun, so nothing must wait for it
            self._is_over.set()
            raise

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Waits for a load in progress, up to the timeout."""
        if self.is_going_on:
            self._is_over.wait(timeout_s)

    def _run(self) -> None:
        try:
            self._load()
        except ImportError:
            pass  # Everything works without kernels, more slowly; code that needs them loads them itself and raises.
        except Exception as error:
            # numba raises RuntimeError if it cannot write to the package's directory nor to the user's cache.
            _logger.warning(
                "compiled kernels cannot be loaded, slower code is used instead: %s; "
                "set NUMBA_CACHE_DIR to a directory that can be written to",
                error,
            )
        finally:
            self._is_over.set()
