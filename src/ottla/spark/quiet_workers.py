"""Python workers that end without a traceback when Java is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import ModuleType


def quieten(daemon: ModuleType) -> None:
    """Makes workers of PySpark's daemon end silently if Java no longer listens, which happens when a query or a session
    is stopped. With Unix sockets they notice, and each would print a traceback."""
    serve: Callable[[socket.socket, bool], int] = daemon.worker

    def serve_quietly(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve(sock, authenticated)
        except BrokenPipeError:
            os._exit(1)

    serve_quietly.is_quiet = True  # type: ignore[attr-defined]
    daemon.worker = serve_quietly  # type: ignore[attr-defined]
