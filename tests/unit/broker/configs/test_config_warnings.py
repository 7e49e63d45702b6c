"""Warnings about valid configs."""

from __future__ import annotations

import pytest

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.config_warnings import warnings_of


@pytest.mark.parametrize(
    ("listeners", "exposed"),
    [
        ("PLAINTEXT://127.0.0.1:9092", []),
        ("PLAINTEXT://localhost:9092", []),
        ("PLAINTEXT://[::1]:9092", []),
        ("PLAINTEXT://:9092", ["PLAINTEXT://:9092"]),
        ("PLAINTEXT://0.0.0.0:9092", ["PLAINTEXT://0.0.0.0:9092"]),
        ("PLAINTEXT://10.1.2.3:9092", ["PLAINTEXT://10.1.2.3:9092"]),
        ("PLAINTEXT://kafka.example:9092", ["PLAINTEXT://kafka.example:9092"]),
    ],
)
def test_a_listener_that_other_machines_reach_without_security_is_warned_of(listeners: str, exposed: list[str]) -> None:
    warnings = list(warnings_of(BrokerConfig({"listeners": listeners})))
    assert [warning.split()[1] for warning in warnings] == exposed
    assert all("without authentication or encryption" in warning for warning in warnings)
