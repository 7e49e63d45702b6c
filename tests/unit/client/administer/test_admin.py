"""The two faces of the admin."""

from __future__ import annotations

import inspect
import threading

import pytest

from ottla import Admin, AsyncAdmin
from ottla.client.errors import ClosedError, ConfigError, NoBrokerError

LIFE = {"close"}


def public(face: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(face, inspect.isfunction) if not name.startswith("_")}


def test_both_have_the_same_methods_with_the_same_arguments() -> None:
    blocking, waiting = public(Admin), public(AsyncAdmin)
    assert blocking.keys() == waiting.keys()
    for name in blocking.keys() - LIFE:
        assert inspect.signature(blocking[name]) == inspect.signature(waiting[name]), name  # type: ignore[arg-type]
        assert inspect.iscoroutinefunction(waiting[name])
        assert inspect.getdoc(blocking[name])


def test_what_is_wrong_with_the_settings_is_said_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=r"default\.api\.timeout\.ms"):
        Admin({"bootstrap.servers": "localhost:9092", "default.api.timeout": 5})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Admin()
    assert threading.active_count() == threads


def test_nobody_there_and_after_the_end() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=500) as admin:
        with pytest.raises(NoBrokerError, match=r"127\.0\.0\.1:1"):
            admin.list_topics()
        with pytest.raises(NoBrokerError):
            admin.describe_cluster()
    with pytest.raises(ClosedError):
        admin.list_topics()
