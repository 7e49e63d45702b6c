"""A fixed number of mutated batches; `make fuzz` reads a million."""

from __future__ import annotations

import pytest

from fuzz import records as records_fuzz


@pytest.mark.parametrize("seed", range(4))
def test_mutated_batches_raise_record_errors_only_and_all_readers_agree(seed: int) -> None:
    outcomes = records_fuzz.run(seed, batches=5_000)
    assert outcomes.total() == 5_000
    assert {"read", "CorruptBatchError", "MalformedRecordError", "RecordCountError", "old: read"} <= outcomes.keys()
