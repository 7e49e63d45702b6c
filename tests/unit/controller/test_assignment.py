from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.controller import assignment
from ottla.controller.errors import ControllerError


def test_every_partition_is_where_the_broker_is() -> None:
    assert assignment.chosen(3, 1, [7]) == [(7,), (7,), (7,)]


@pytest.mark.parametrize(
    ("partition_count", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts(partition_count: int, replication_factor: int, code: ErrorCode) -> None:
    with pytest.raises(ControllerError) as refused:
        assignment.chosen(partition_count, replication_factor, [7])
    assert refused.value.code is code


def test_by_hand_in_any_order() -> None:
    assert assignment.by_hand([(1, [8]), (0, [7]), (2, [7])], [7, 8]) == [(7,), (8,), (7,)]


@pytest.mark.parametrize(
    ("assignments", "what"),
    [
        ([(1, [7])], "numbered from 0"),
        ([(0, [7]), (2, [7])], "numbered from 0"),
        ([(0, [7]), (-1, [7])], "numbered from 0"),
        ([(0, [7]), (0, [7])], "Partition 0 is assigned more than once"),
        ([(0, [])], "Partition 0 has no replicas"),
        ([(0, [7, 7])], "two replicas on one broker: 7, 7"),
        ([(0, [7]), (1, [9])], "unknown brokers: 9"),
        ([(0, [7]), (1, [7, 8])], "partition 1 has 2"),
    ],
)
def test_wrong_by_hand(assignments: Sequence[tuple[int, Sequence[int]]], what: str) -> None:
    with pytest.raises(ControllerError, match=what) as refused:
        assignment.by_hand(assignments, [7, 8])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
