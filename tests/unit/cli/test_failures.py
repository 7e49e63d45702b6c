"""Failures in words."""

from __future__ import annotations

import pytest

from ottla.base.config import ConfigError
from ottla.base.error_codes import ErrorCode
from ottla.cli.failures import explain
from ottla.cli.session import CommandError
from ottla.client.errors import RefusedError, UnknownTopicError
from ottla.net.client_connection import BrokerUnreachableError, RequestTimeoutError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommandError("it cannot be"), "it cannot be."),
        (CommandError("really?"), "really?"),
        (ConfigError("a.key", "it is wrong"), "a.key: it is wrong."),
        (RefusedError(ErrorCode.INVALID_CONFIG, "topic t", "Not so."), "topic t: Not so (INVALID_CONFIG)."),
        (UnknownTopicError("t"), "topic 't' does not exist. `ottla topics list` shows those there are."),
        (RequestTimeoutError("it is late"), "it is late."),
        (FileNotFoundError(2, "No such file", "/a/b"), "/a/b: No such file."),
        (OSError(5, "Input/output error"), "Input/output error."),
        (
            ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client"),
            "This command needs prometheus_client. Install it with `pip install 'ottla[broker]'`.",
        ),
        (ZeroDivisionError("zero"), "This should not happen: ZeroDivisionError, zero. `ottla --debug …` shows where."),
    ],
)
def test_each_failure_has_its_words(error: Exception, words: str) -> None:
    assert explain(error) == words


def test_where_no_broker_is_it_says_how_to_get_one() -> None:
    words = explain(BrokerUnreachableError("nobody there"))
    assert words.startswith("nobody there. `ottla start` starts a broker")
