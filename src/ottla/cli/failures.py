"""Error messages for failures: what happened, to what, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from ottla.base.config import ConfigError
from ottla.cli.session import CommandError

_EXTRAS: Final = {"prometheus_client": "broker", "rich": "cli"}
"""The extra that installs a package a command may be missing."""


def explain(error: Exception, bootstrap: str | None = None) -> str:
    """One or two sentences. `bootstrap` is the list of brokers, if the user gave one."""
    # Imported here because a command that succeeds needs none of them.
    from ottla.client.errors import ClientError, UnknownTopicError
    from ottla.log.errors import LogError
    from ottla.net.client_connection import BrokerConnectionError, BrokerUnreachableError
    from ottla.records.errors import RecordError
    from ottla.zookeeper.tree_file import TreeFileError

    match error:
        case CommandError() | ConfigError():
            return _sentence(str(error))
        case BrokerUnreachableError():
            hint = "Start a broker with `ottla start`, or choose another one with --bootstrap-server."
            if bootstrap and not _is_here(bootstrap):
                hint = "Choose the brokers to connect to with --bootstrap-server."
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
    return f"Internal error: {type(error).__name__}: {error}. Run `ottla --debug …` for a traceback."


def _topic_hint(topic: str, error: Exception) -> str:
    """Suggests the closest existing topic, if the command recorded which topics exist."""
    known = getattr(error, "known_topics", ())
    if close := get_close_matches(topic, known, n=1):
        return f"Did you mean {close[0]!r}?"
    return f"List topics with `ottla topics list`, or create it with `ottla topics create {topic}`."


def _is_here(bootstrap: str) -> bool:
    """Whether any of the addresses is on this machine."""
    return any(one.strip().startswith(("localhost", "127.", "[::1]", ":")) for one in bootstrap.split(","))


def _sentence(text: str) -> str:
    """With a capital letter, unless it starts with a name such as a path or an option, and a full stop."""
    text = text.strip()
    first, _, rest = text.partition(" ")
    if rest and first.isalpha():
        text = f"{text[0].upper()}{text[1:]}"
    return text if text.endswith((".", "!", "?")) else f"{text}."
