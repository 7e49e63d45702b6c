"""Batches by description."""

from __future__ import annotations

import pytest

from differential import batches
from ottla.records import decode_batch
from ottla.records.batch import BatchView, compute_crc
from ottla.records.layout import Compression


def test_a_batch_is_as_described() -> None:
    spec = {"n": 3, "size": 100, "key": "k", "time": 5, "codec": 1, "headers": 2, "pid": 7, "epoch": 1, "seq": 4}
    view = BatchView(batches.build(spec))
    records = decode_batch(view)
    assert [each.timestamp_ms for each in records] == [5, 6, 7]
    assert [each.key for each in records] == [b"k0", b"k1", b"k2"]
    assert {len(each.value or b"") for each in records} == {100}
    assert {len(each.headers) for each in records} == {2}
    assert (view.compression, view.producer_id, view.producer_epoch, view.base_sequence) == (Compression.GZIP, 7, 1, 4)


@pytest.mark.parametrize("damage", batches.DAMAGES)
def test_every_damage_changes_a_batch(damage: str) -> None:
    spec = {"n": 2, "size": 30, "key": "k"}
    damaged = batches.build({**spec, "damage": damage})
    assert damaged != batches.build(spec)


@pytest.mark.parametrize("damage", [each for each in batches.DAMAGES if each not in ("crc", *batches.CRC_STAYS)])
def test_only_what_is_named_is_damaged(damage: str) -> None:
    view = BatchView(batches.build({"n": 2, "size": 30, "key": "k", "damage": damage}))
    assert compute_crc(view.data) == view.crc


def test_an_unknown_damage_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no damage 'rust'"):
        batches.build({"damage": "rust"})


def test_sizes_do_not_depend_on_symbols() -> None:
    spec = {"n": 2, "size": 10, "time": "$time:4000", "pid": "$pid:p0", "epoch": 0, "seq": 0}
    assert batches.size_of(spec) == len(batches.build({**spec, "time": 1_700_000_000_000, "pid": 99}))
