"""Whether the machine went down under the broker: records that were not flushed may then be missing.

Every log directory keeps the id of the boot in which a broker used it. A start that finds another id, and no mark of a
clean stop, may have lost the page cache. A killed process alone keeps it, and does not count. Where the system has no
such id, nothing is ever suspected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla.log.names import CLEAN_SHUTDOWN

_logger = logging.getLogger(__name__)

FILE_NAME: Final = "machine.boot"
_LINUX_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """The id of this boot; None if the system does not tell."""
    try:
        return _LINUX_BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


class BootMark:
    """Made before the logs are opened, because that removes the mark of a clean stop."""

    def __init__(self, log_dirs: Sequence[Path], boot: Callable[[], str | None] = boot_id) -> None:
        self._paths = [each / FILE_NAME for each in log_dirs]
        self._boot = boot()
        self.may_have_lost_data = any(map(self._is_doubtful, log_dirs))

    def _is_doubtful(self, directory: Path) -> bool:
        if self._boot is None or (directory / CLEAN_SHUTDOWN).exists():
            return False
        try:
            before = (directory / FILE_NAME).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return False  # the first start here
        return before != self._boot

    def confirm(self) -> None:
        """The cluster knows of it by now, and later registrations need not say it again: the next start compares with
        this boot."""
        self.may_have_lost_data = False
        for path in self._paths if self._boot is not None else ():
            try:
                path.write_text(f"{self._boot}\n", encoding="ascii")
            except OSError as error:
                _logger.warning("%s cannot be written: %s", path, error)
