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
        (CommandError("it cannot be"), "It cannot be."),
        (CommandError("really?"), "really?"),
        (ConfigError("a.key", "it is wrong"), "a.key: it is wrong."),
        (RefusedError(ErrorCode.INVALID_CONFIG, "topic t", "Not so."), "Topic t: Not so (INVALID_CONFIG)."),
        (
            UnknownTopicError("t"),
            "Topic 't' does not exist. "
            "List topics with `ottla topics list`, or create it with `ottla topics create t`.",
        ),
        (RequestTimeoutError("it is late"), "It is late."),
        (FileNotFoundError(2, "No such file", "/a/b"), "/a/b: No such file."),
        (OSError(5, "Input/output error"), "Input/output error."),
        (
            ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client"),
            "This command needs prometheus_client. Install it with `pip install 'ottla[broker]'`.",
        ),
        (ZeroDivisionError("zero"), "Internal error: ZeroDivisionError: zero. Run `ottla --debug …` for a traceback."),
    ],
)
def test_each_failure_has_its_words(error: Exception, words: str) -> None:
    assert explain(error) == words


def test_where_no_broker_is_it_says_how_to_get_one() -> None:
    start = "Nobody there. Start a broker with `ottla start`, or choose another one with --bootstrap-server."
    error = BrokerUnreachableError("nobody there")
    assert [explain(error, bootstrap) for bootstrap in (None, "localhost:1", "x:1,127.0.0.1:2")] == [start] * 3
    assert explain(error, "kafka-1:9092") == "Nobody there. Choose the brokers to connect to with --bootstrap-server."


def test_a_topic_that_is_not_there_may_be_another() -> None:
    error = UnknownTopicError("ordres")
    error.known_topics = ("payments", "orders")  # type: ignore[attr-defined]
    assert explain(error) == "Topic 'ordres' does not exist. Did you mean 'orders'?"
