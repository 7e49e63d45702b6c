"""The controllers of a cluster, whatever brokers, sessions and the network do. `make soak` looks longer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from models.controllers import ControllersModel
from support.examples import examples

BRIEF = settings(
    max_examples=examples(60),
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(BRIEF, max_examples=3000, stateful_step_count=80)


def test_controllers_keep_their_promises() -> None:
    run_state_machine_as_test(ControllersModel, settings=BRIEF)


@pytest.mark.soak
def test_controllers_keep_their_promises_for_long() -> None:
    run_state_machine_as_test(ControllersModel, settings=LONG)
