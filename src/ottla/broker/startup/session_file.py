"""The ZooKeeper session of this broker, kept in its first log directory so that the next start can end it.

A broker that was killed stays registered until its session expires. The password in this file lets the next process end
the session at once, so only the broker's user may read it. Losing the file costs nothing but time: every error is
logged, and the broker waits for the session to expire.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.zookeeper.client.connection import SessionToken

_logger = logging.getLogger(__name__)

FILE_NAME: Final = "zookeeper.session"


class SessionFile:
    """Touched only by the process that has the locks of the log directories."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._paths = [each / FILE_NAME for each in log_dirs]

    def read(self) -> SessionToken | None:
        """From any of the directories: they may be listed in another order than before."""
        for path in self._paths:
            try:
                fields = json.loads(path.read_bytes())
                return SessionToken(int(fields["session_id"], 16), bytes.fromhex(fields["password"]))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                _logger.warning("%s cannot be used, and is ignored: %s", path, error)
        return None

    def write(self, token: SessionToken) -> None:
        path = self._paths[0]
        new = path.with_name(f"{path.name}.new")
        content = {"version": 1, "session_id": f"{token.session_id:#x}", "password": token.password.hex()}
        try:
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            new.replace(path)
        except OSError as error:
            _logger.warning("the ZooKeeper session cannot be kept in %s: %s", path, error)
        self._remove(self._paths[1:])

    def remove(self) -> None:
        """The session has ended."""
        self._remove(self._paths)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _logger.warning("%s cannot be removed: %s", path, error)
