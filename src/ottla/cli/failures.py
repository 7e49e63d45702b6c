"""Failures in words: what happened, to what, and what to do."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigError
from ottla.cli.session import CommandError

_EXTRAS: Final = {"prometheus_client": "broker", "rich": "cli"}
"""Which extra installs a package that a command can find missing."""


def explain(error: Exception) -> str:
    """One or two sentences."""
    # Imported here because a command that succeeds may need none of them.
    from ottla.client.errors import ClientError, UnknownTopicError
    from ottla.log.errors import LogError
    from ottla.net.client_connection import BrokerConnectionError, BrokerUnreachableError
    from ottla.records.errors import RecordError
    from ottla.zookeeper.tree_file import TreeFileError

    match error:
        case CommandError() | ConfigError():
            return _sentence(str(error))
        case BrokerUnreachableError():
            hint = "`ottla start` starts a broker on this machine, --bootstrap-server names another one."
            return f"{_sentence(str(error))} {hint}"
        case UnknownTopicError():
            return f"{_sentence(str(error))} `ottla topics list` shows those there are."
        case ClientError() | BrokerConnectionError() | LogError() | RecordError() | TreeFileError():
            return _sentence(str(error))
        case ModuleNotFoundError() if error.name in _EXTRAS:
            hint = f"Install it with `pip install 'ottla[{_EXTRAS[error.name]}]'`."
            return f"This command needs {error.name}. {hint}"
        case OSError() if error.strerror:
            where = f"{error.filename}: " if error.filename else ""
            return _sentence(f"{where}{error.strerror}")
    return f"This should not happen: {type(error).__name__}, {error}. `ottla --debug …` shows where."


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
