"""The levels of this process's loggers, which Kafka's tools show and set (KIP-412). Lost at a restart."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
_NUMBERS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
LEVELS: Final = tuple(_NUMBERS)


def logger_levels() -> dict[str, str]:
    """The effective level of each of our loggers, and of the root logger."""
    ours = (name for name in logging.root.manager.loggerDict if name == "ottla" or name.startswith("ottla."))
    return {name: _name_of(logging.getLogger(name).getEffectiveLevel()) for name in sorted((ROOT, *ours))}


def exists(name: str) -> bool:
    return name in logger_levels()


def set_level(name: str, level: str | None) -> None:
    """One of `LEVELS`; None to inherit the level of the parent logger."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else _NUMBERS[level])


def _name_of(number: int) -> str:
    names = [name for name, known in _NUMBERS.items() if known <= number]
    return names[-1] if names else "TRACE"
