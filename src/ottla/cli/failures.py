"""Failures in words: what happened, to what, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from ottla.base.config import ConfigError
from ottla.cli.session import CommandError

_EXTRAS: Final = {"prometheus_client": "broker", "rich": "cli"}
"""Which extra installs a package that a command can find missing."""


def explain(error: Exception, bootstrap: str | None = None) -> str:
    """One or two sentences. `bootstrap` names the brokers, if any were named."""
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
            hint = "Start a broker with `ottla start`, or name another one with --bootstrap-server."
            if bootstrap and not _is_here(bootstrap):
                hint = "--bootstrap-server names the brokers to connect to."
            return f"{_sentence(str(error))} {hint}"
        case UnknownTopicError():
            return f"{_sentence(str(error))} {_topic_hint(error.topic, error)}"
        case ClientError() | BrokerConnectionError() | LogError() | RecordError() | TreeFileError():
            return _sentence(str(error))
        case ModuleNotFoundError() if error.name in _EXTRAS:
            hint = f"Install it with `pip install 'ottla[{_EXTRAS[error.name]}]'`."
            return f"This command needs {error.name}. {hint}"
        case OSError() if error.strerror:
            where = f"{error.filename}: " if error.filename else ""
            return _sentence(f"{where}{error.strerror}")
    return f"This should not happen: {type(error).__name__}, {error}. `ottla --debug …` shows where."


def _topic_hint(topic: str, error: Exception) -> str:
    """The name that was perhaps meant, where commands noted which topics there are."""
    known = getattr(error, "known_topics", ())
    if close := get_close_matches(topic, known, n=1):
        return f"Did you mean {close[0]!r}?"
    return f"`ottla topics list` lists the topics, `ottla topics create {topic}` creates this one."


def _is_here(bootstrap: str) -> bool:
    """Whether any of the addresses is this machine's own."""
    return any(one.strip().startswith(("localhost", "127.", "[::1]", ":")) for one in bootstrap.split(","))


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
