from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.error_codes import ErrorCode

UNASSIGNED = st.integers(-(2**15), 2**15 - 1).filter(lambda code: code not in range(-1, 134))


def test_codes_have_no_gap_and_no_second_name() -> None:
    assert [error.value for error in ErrorCode] == list(range(-1, 134))
    assert len(ErrorCode.__members__) == len(ErrorCode)


def test_an_error_is_the_number_that_travels() -> None:
    assert {6: "not the leader"}[ErrorCode.NOT_LEADER_OR_FOLLOWER] == "not the leader"
    assert struct.pack(">h", ErrorCode.UNKNOWN_SERVER_ERROR) == b"\xff\xff"
    assert not ErrorCode.NONE


@pytest.mark.parametrize("error", ErrorCode, ids=lambda error: error.name)
def test_of_finds_every_code(error: ErrorCode) -> None:
    assert ErrorCode.of(int(error)) is error


@settings(deadline=None)
@given(UNASSIGNED)
def test_of_takes_a_code_it_does_not_know_for_an_unknown_server_error(code: int) -> None:
    assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.PRODUCER_FENCED, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
    ],
)
def test_retriability(error: ErrorCode, retriable: bool) -> None:
    assert error.retriable is retriable


@pytest.mark.parametrize("error", ErrorCode, ids=lambda error: error.name)
def test_a_description_is_one_line_that_says_something(error: ErrorCode) -> None:
    text = error.description
    assert text[0].isupper()
    assert text.endswith(".")
    assert "\n" not in text
    assert "  " not in text
    assert error is ErrorCode.NONE or len(text.split()) >= 7


def test_no_two_descriptions_are_the_same() -> None:
    assert len({error.description for error in ErrorCode}) == len(ErrorCode)
