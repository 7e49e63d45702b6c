"""Modules that take long to load, loaded in a thread once there is enough to do for them.

Compiled kernels need numba and Arrow: half a second, far too long for a program that sends ten records, and nothing for
one that sends a million. But a thread that works without a pause hardly lets another load anything: what takes half a
second alone takes five beside it. So whoever has a lot to do waits for a load that is under way, for a moment.
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
"""For a load that is under way."""


def load_apart(load: Callable[[], T]) -> T:
    """What `load` returns or raises, called in another thread. A Ctrl-C in the middle of an import would leave numba
    or NumPy half loaded, and useless to the process from then on; this only stops waiting for it."""
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread alone
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
    """One load, done once. Safe in any thread."""

    def __init__(self, load: Callable[[], object], needs: tuple[str, ...] = ("numba", "pyarrow")) -> None:
        """`load` imports what is wanted; packages that it needs and that are not there are not waited for."""
        self._load = load
        self._needs = needs
        self._lock = threading.Lock()
        self._is_begun = False
        self._is_over = threading.Event()

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    @property
    def is_going_on(self) -> bool:
        return self._is_begun and not self._is_over.is_set()

    def begin(self) -> None:
        """Loads in a thread. Again is no harm."""
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
            # Not a daemon: an interpreter that ends in the middle of loading compiled code may not end well.
            threading.Thread(target=self._run, name="ottla-load-kernels").start()
        except Exception as error:  # no thread can be started, say
            self._is_over.set()
            _logger.warning("compiled kernels cannot be loaded, slower code is used instead: %s", error)
        except BaseException:  # Ctrl-C: nobody waits for what may not have begun
            self._is_over.set()
            raise

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Until a load that is under way is over, or so long."""
        if self.is_going_on:
            self._is_over.wait(timeout_s)

    def _run(self) -> None:
        try:
            self._load()
        except ImportError:
            pass  # Everything works without, more slowly; code that cannot do without loads it itself, and raises.
        except Exception as error:
            # numba raises RuntimeError where neither the package nor the user has a directory that it can write to.
            _logger.warning(
                "compiled kernels cannot be loaded, slower code is used instead: %s; "
                "set NUMBA_CACHE_DIR to a directory that can be written to",
                error,
            )
        finally:
            self._is_over.set()
