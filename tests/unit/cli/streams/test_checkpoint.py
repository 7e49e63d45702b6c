"""What `ottla streams reset` sees in a directory, and what it refuses to delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.session import CommandError
from ottla.cli.streams.checkpoint import aside, checkpoints_at, delete_aside, put_aside


def make(place: Path, *, planned: int = 3, done: int = 2) -> Path:
    """A checkpoint as Spark writes it, of a query with two sources."""
    for part in ("offsets", "commits", "state"):
        (place / part).mkdir(parents=True)
    (place / "metadata").write_text('{"id":"a4f5"}')
    for batch in range(planned):
        source = {"@id:orders:xyz": {}, "orders": {"0": batch, "1": 7}}
        (place / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchWatermarkMs":0,"conf":{{"a":"b"}}}}\n{json.dumps(source)}\n{{"rates":{{"0":1}}}}\n-\n'
        )
        (place / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in range(done):
        (place / "commits" / str(batch)).write_text("v1\n{}")
    return place


def test_a_checkpoint(tmp_path: Path) -> None:
    (found,) = checkpoints_at(make(tmp_path / "totals", planned=12, done=11))
    assert (found.query_id, found.topics) == ("a4f5", ("orders", "rates"))
    assert (found.last_planned, found.last_done, found.is_unfinished) == (11, 10, True)
    (found,) = checkpoints_at(make(tmp_path / "new", planned=0, done=0))
    assert (found.last_planned, found.topics, found.is_unfinished) == (None, (), False)


def test_a_pipeline_has_one_for_each_query(tmp_path: Path) -> None:
    make(tmp_path / "first")
    make(tmp_path / "second")
    (tmp_path / "spark.log").write_text("")
    assert [one.place.name for one in checkpoints_at(tmp_path)] == ["first", "second"]


def test_changes_are_seen(tmp_path: Path) -> None:
    place = make(tmp_path / "totals")
    before = checkpoints_at(place)
    assert checkpoints_at(place) == before
    (place / "commits" / "2").write_text("v1\n{}")
    assert checkpoints_at(place) != before


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"/none' does not exist"):
        checkpoints_at(tmp_path / "none")
    (tmp_path / "photos").mkdir()
    with pytest.raises(CommandError, match="is not the checkpoint of a query: it has no file 'metadata'"):
        checkpoints_at(tmp_path)
    make(tmp_path / "totals")
    with pytest.raises(CommandError, match=r"it has other directories \(photos\)"):
        checkpoints_at(tmp_path)
    (tmp_path / "photos" / "metadata").write_text("{}")
    with pytest.raises(CommandError, match="photos' is not the checkpoint"):
        checkpoints_at(tmp_path / "photos")


def test_an_interrupted_reset_can_be_repeated(tmp_path: Path) -> None:
    place = make(tmp_path / "totals")
    put_aside(place)
    assert not place.exists()
    assert checkpoints_at(place) == []
    put_aside(place)  # there is nothing to do
    assert aside(place).is_dir()
    delete_aside(place)
    assert list(tmp_path.iterdir()) == []
    make(place)
    make(aside(place))  # of a reset before the query was started again
    put_aside(place)
    assert not place.exists()
