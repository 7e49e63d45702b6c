"""What must be true of a group after any chaos, by what its members told and what the group had committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

Tenure = tuple[int, Sequence[int]]
"""A partition, and the offsets that a member saw of it from its assignment to its revocation."""


def check_tenure(tenure: Tenure, who: str) -> None:
    """While a member owns a partition it sees each record once, in order, and skips none."""
    partition, offsets = tenure
    for before, after in pairwise(offsets):
        assert after == before + 1, f"{who}: partition {partition}: offset {after} came after {before}"


def check_everything_seen(tenures: Iterable[Tenure], stored: Mapping[int, int]) -> None:
    """Between them, the members have seen every record: `stored` has the end offset of each partition."""
    seen: dict[int, set[int]] = {partition: set() for partition in stored}
    for partition, offsets in tenures:
        seen[partition].update(offsets)
    for partition, end in stored.items():
        missing = sorted(set(range(end)) - seen[partition])
        assert not missing, f"partition {partition}: nobody saw {len(missing)} of {end} records, such as {missing[:10]}"


def check_commits(history: Sequence[Mapping[int, int]]) -> None:
    """What the group has committed, as an outsider saw it one time after the other, never moves back."""
    last: dict[int, int] = {}
    for number, committed in enumerate(history):
        for partition, offset in committed.items():
            before = last.get(partition, offset)
            assert offset >= before, f"partition {partition}: {before} was committed, and then {offset} (look {number})"
            last[partition] = offset
