"""The connection for what a bench asks beside its load."""

from __future__ import annotations

import socket

import pytest
from bench.broker.control import Control

from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse


def test_a_request_that_is_never_answered_names_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            Control(address, answer_timeout_s=1) as control,
            pytest.raises(TimeoutError, match=f"{address} has not answered MetadataRequest within 1 s"),
        ):
            control.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
