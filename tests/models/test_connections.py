"""Connections against their promises, whatever peers, handlers and the sending thread do. `make soak` looks longer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from models.client_connections import ClientConnectionModel
from models.connections import ServerConnectionModel
from support.examples import examples

BRIEF = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(BRIEF, max_examples=3000, stateful_step_count=60)


def test_the_servers_connections_keep_their_promises() -> None:
    run_state_machine_as_test(ServerConnectionModel, settings=BRIEF)


@pytest.mark.soak
def test_the_servers_connections_keep_their_promises_for_long() -> None:
    run_state_machine_as_test(ServerConnectionModel, settings=LONG)


def test_a_clients_connection_keeps_its_promises() -> None:
    run_state_machine_as_test(ClientConnectionModel, settings=BRIEF)


@pytest.mark.soak
def test_a_clients_connection_keeps_its_promises_for_long() -> None:
    run_state_machine_as_test(ClientConnectionModel, settings=LONG)
