from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.startup.boot_mark import FILE_NAME, BootMark
from ottla.log.names import CLEAN_SHUTDOWN


def mark(directory: Path, boot: str | None) -> BootMark:
    return BootMark([directory], lambda: boot)


def test_a_machine_that_went_down_makes_data_doubtful(tmp_path: Path) -> None:
    first = mark(tmp_path, "one")
    assert not first.may_have_lost_data
    first.confirm()
    assert not mark(tmp_path, "one").may_have_lost_data  # a killed process keeps the page cache
    later = mark(tmp_path, "two")
    assert later.may_have_lost_data
    assert mark(tmp_path, "two").may_have_lost_data  # not confirmed yet
    later.confirm()
    assert not later.may_have_lost_data
    assert not mark(tmp_path, "two").may_have_lost_data


def test_a_clean_stop_leaves_no_doubt(tmp_path: Path) -> None:
    mark(tmp_path, "one").confirm()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert not mark(tmp_path, "two").may_have_lost_data


def test_a_system_without_ids_of_boots_is_never_in_doubt(tmp_path: Path) -> None:
    mark(tmp_path, "one").confirm()
    unknown = mark(tmp_path, None)
    assert not unknown.may_have_lost_data
    unknown.confirm()
    assert (tmp_path / FILE_NAME).read_text() == "one\n"


def test_a_directory_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark(tmp_path / "missing", "one").confirm()
    assert "cannot be written" in caplog.text
