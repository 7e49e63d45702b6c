"""The format of a broker's log lines on standard error: text for people, or one JSON object per line.

Both show the `extra={…}` of a logging call. Input from clients (a client id, a topic name) cannot break a line or start
a new one.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Hashable, Mapping
from typing import Any, Final

from ottla.base.clock import Clock

FORMATS: Final = ("text", "json")

_OWN_FIELDS: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_PLAIN_VALUE: Final = re.compile(r'[^\s"=]+')
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure(format: str = "text", level: str = "info") -> None:  # noqa: A002 - as the config key calls it
    """Sets the format and the level of log lines; other libraries log warnings and above. Can be called again."""
    if format not in FORMATS:
        raise ValueError(f"{format!r} is not a format of log lines; there are {' and '.join(FORMATS)}")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is not a level of log lines; there are debug, info, warning, error and critical")
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _StderrHandler)]:
        root.removeHandler(handler)
    handler = _StderrHandler()
    handler.setFormatter(TextFormatter() if format == "text" else JsonFormatter())
    root.addHandler(handler)
    root.setLevel(max(number, logging.WARNING))
    logging.getLogger("ottla").setLevel(number)


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the current standard error, even if it was replaced."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        raise AttributeError("log lines go to standard error")


class TextFormatter(logging.Formatter):
    """Time, level, message, fields. Debug lines also name the logger."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        writer = f"[{record.name}] " if record.levelno <= logging.DEBUG else ""
        line = f"{moment},{int(record.msecs):03d} {record.levelname:<7} {writer}{record.getMessage()}"
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        text = _CONTROL_CHARACTERS.sub(_escaped, line + fields)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, `exception` if there is one, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        content = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        fields = {name: value for name, value in _fields(record).items() if name not in content}
        return json.dumps(content | fields, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode("ascii")


class ThrottledLog:
    """Rate-limits log lines that clients can cause: one line per key in `interval_s`, which also says how many were
    suppressed since the last one. Keys beyond `max_keys` share one, so that many addresses fill neither the log nor the
    memory."""

    def __init__(self, logger: logging.Logger, clock: Clock, *, interval_s: float = 10.0, max_keys: int = 1000) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_s = interval_s
        self._max_keys = max_keys
        self._written_s: dict[Hashable, float] = {}
        """When the last line of each key was written, oldest first."""
        self._left_out: dict[Hashable, int] = {}

    def warning(self, key: Hashable, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Like `Logger.warning`. Lines with the same `key`, such as an address, are rate-limited together."""
        self._log(logging.WARNING, key, message, args, extra)

    def info(self, key: Hashable, message: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        self._log(logging.INFO, key, message, args, extra)

    def _log(
        self, level: int, key: Hashable, message: str, args: tuple[object, ...], extra: Mapping[str, object] | None
    ) -> None:
        now_s = self._clock.monotonic_s()
        if key not in self._written_s and len(self._written_s) >= self._max_keys:
            self._forget_before(now_s - self._interval_s)
            if len(self._written_s) >= self._max_keys:
                key = None
        last_s = self._written_s.get(key)
        if last_s is not None and now_s - last_s < self._interval_s:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._written_s.pop(key, None)
        self._written_s[key] = now_s
        left_out = self._left_out.pop(key, 0)
        if left_out:
            message, args = f"{message} (and %d more like it before)", (*args, left_out)
        self._logger.log(level, message, *args, extra=extra)

    def _forget_before(self, moment_s: float) -> None:
        for key, written_s in list(self._written_s.items()):
            if written_s > moment_s:
                break
            del self._written_s[key]
            self._left_out.pop(key, None)
