"""What every `Disk` promises, asked of the real one and of its fake."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Disk, File
from ottla.log.local_disk import LocalDisk
from ottla.testing.simulated_disk import SimulatedDisk
from support.examples import examples

DISKS: list[Callable[[], Disk]] = [LocalDisk, SimulatedDisk]


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest) -> Disk:
    made: Disk = request.param()
    return made


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    folder = tmp_path / "contract"
    disk.make_directory(folder)
    return folder


def create(disk: Disk, path: Path, data: bytes = b"") -> File:
    file = disk.open(path, create=True)
    if data:
        file.append(data)
    return file


def test_a_created_file_is_empty_and_there(disk: Disk, folder: Path) -> None:
    path = folder / "new"
    file = disk.open(path, create=True)
    assert isinstance(file, File)
    assert file.path == path
    assert file.size() == 0
    assert file.read_at(0, 10) == b""
    assert disk.exists(path)
    assert disk.size(path) == 0
    assert not disk.is_directory(path)
    file.close()


def test_opening_an_absent_file_names_it(disk: Disk, folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        disk.open(folder / "absent")
    assert caught.value.filename is not None
    assert Path(caught.value.filename) == folder / "absent"
    assert not disk.exists(folder / "absent")


def test_opening_in_an_absent_folder_fails(disk: Disk, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(folder / "absent" / "file", create=True)


def test_a_folder_cannot_be_opened_or_written(disk: Disk, folder: Path) -> None:
    for act in (
        lambda: disk.open(folder, create=True),
        lambda: disk.read(folder),
        lambda: disk.write(folder, b"x"),
        lambda: disk.remove(folder),
    ):
        with pytest.raises(IsADirectoryError):
            act()


def test_every_reader_sees_appended_bytes(disk: Disk, folder: Path) -> None:
    path = folder / "file"
    writer = create(disk, path)
    reader = disk.open(path)
    writer.append(b"one")
    writer.append(memoryview(bytearray(b"-two")))
    assert writer.size() == 7
    assert writer.read_at(0, 100) == b"one-two"
    assert reader.read_at(0, 100) == b"one-two"
    assert reader.read_at(3, 2) == b"-t"
    assert disk.read(path) == b"one-two"
    assert disk.size(path) == 7
    writer.close()
    reader.close()


def test_reopening_continues_at_the_end(disk: Disk, folder: Path) -> None:
    path = folder / "file"
    create(disk, path, b"one").close()
    file = disk.open(path, create=True)
    assert file.size() == 3
    file.append(b"two")
    assert file.size() == 6
    assert file.read_at(0, 6) == b"onetwo"
    file.close()


def test_appending_nothing_changes_nothing(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"x")
    file.append(b"")
    file.append_all([])
    file.append_all([b"", b""])
    assert file.size() == 1
    assert disk.read(folder / "file") == b"x"
    file.close()


def test_more_parts_than_one_call_takes(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"x")
    parts = [index.to_bytes(3, "big") for index in range(5000)]
    file.append_all(parts)
    assert file.size() == 15_001
    assert file.read_at(1, 15_000) == b"".join(parts)
    file.close()


def test_views_of_wider_items_are_written_whole(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file")
    octets = bytes(range(16))
    file.append(memoryview(octets).cast("I"))
    file.append_all([memoryview(octets).cast("Q"), b"!"])
    assert file.size() == 33
    assert disk.read(folder / "file") == octets + octets + b"!"
    file.close()


def test_truncation(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    assert disk.read(folder / "file") == b"0123"
    file.append(b"ab")
    assert file.read_at(0, 100) == b"0123ab"
    file.truncate(0)
    assert file.size() == 0
    assert disk.size(folder / "file") == 0
    file.close()


@pytest.mark.parametrize("size", [-1, 4])
def test_truncation_only_cuts(disk: Disk, folder: Path, size: int) -> None:
    file = create(disk, folder / "file", b"abc")
    with pytest.raises(ValueError, match=f"cannot be cut to {size} bytes"):
        file.truncate(size)
    assert disk.read(folder / "file") == b"abc"
    assert file.size() == 3
    file.close()


def test_reading_beyond_the_end_and_before_the_beginning(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"abc")
    assert file.read_at(3, 5) == b""
    assert file.read_at(100, 5) == b""
    assert file.read_at(1, 0) == b""
    with pytest.raises(OSError, match="file") as caught:
        file.read_at(-1, 1)
    assert caught.value.errno == errno.EINVAL
    file.close()


def test_a_closed_file_refuses_and_names_itself(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"abc")
    file.close()
    file.close()
    acts: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.append_all([b"x"]),
        lambda: file.read_at(0, 1),
        lambda: file.truncate(0),
        file.sync,
        file.fileno,
    ]
    for act in acts:
        with pytest.raises(OSError, match="file") as caught:
            act()
        assert Path(caught.value.filename) == folder / "file"
    assert disk.read(folder / "file") == b"abc"


def test_an_open_file_outlives_its_name(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"abc")
    disk.replace(folder / "file", folder / "renamed")
    file.append(b"d")
    assert disk.read(folder / "renamed") == b"abcd"
    disk.remove(folder / "renamed")
    file.append(b"e")
    file.sync()
    assert file.read_at(0, 10) == b"abcde"
    assert disk.list(folder) == []
    file.close()


def test_syncing_is_allowed_at_any_time(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file")
    file.sync()
    file.append(b"x")
    file.sync()
    file.truncate(0)
    file.sync()
    disk.sync_directory(folder)
    file.close()
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(folder / "absent")
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(folder / "file")


def test_a_map_shows_the_bytes_and_refuses_writing(disk: Disk, folder: Path) -> None:
    create(disk, folder / "file", b"abcdef").close()
    view = disk.map(folder / "file")
    assert isinstance(view, memoryview)
    assert view.readonly
    assert view.nbytes == 6
    assert bytes(view[2:4]) == b"cd"
    disk.remove(folder / "file")
    assert bytes(view) == b"abcdef"


def test_a_map_of_an_empty_file_is_empty(disk: Disk, folder: Path) -> None:
    create(disk, folder / "file").close()
    assert bytes(disk.map(folder / "file")) == b""
    with pytest.raises(FileNotFoundError):
        disk.map(folder / "absent")


def test_a_map_keeps_the_size_it_began_with(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"abc")
    view = disk.map(folder / "file")
    file.append(b"def")
    assert bytes(view) == b"abc"
    file.close()


def test_writing_a_whole_file(disk: Disk, folder: Path) -> None:
    path = folder / "file"
    disk.write(path, b"a longer content")
    disk.write(path, bytearray(b"short"))
    assert disk.read(path) == b"short"
    disk.write(path, b"")
    assert disk.read(path) == b""
    with pytest.raises(FileNotFoundError):
        disk.read(folder / "absent")
    with pytest.raises(FileNotFoundError):
        disk.write(folder / "absent" / "file", b"x")


def test_writing_atomically_leaves_nothing_beside(disk: Disk, folder: Path) -> None:
    path = folder / "file"
    disk.write_atomically(path, b"old")
    before = disk.open(path)
    disk.write(folder / "file.tmp", b"left by a crash, and longer than what comes now")
    disk.write_atomically(path, memoryview(b"new!"))
    assert disk.read(path) == b"new!"
    assert before.read_at(0, 10) == b"old"
    assert disk.list(folder) == ["file"]
    before.close()


def test_writing_atomically_over_a_folder_keeps_it(disk: Disk, folder: Path) -> None:
    disk.make_directory(folder / "taken")
    with pytest.raises(IsADirectoryError):
        disk.write_atomically(folder / "taken", b"x")
    assert disk.list(folder) == ["taken"]


def test_listing_is_sorted_and_names_only(disk: Disk, folder: Path) -> None:
    for name in ("b", "a", "c.log"):
        disk.write(folder / name, b"")
    disk.make_directory(folder / "0-folder" / "inner")
    assert disk.list(folder) == ["0-folder", "a", "b", "c.log"]
    assert disk.list(folder / "0-folder") == ["inner"]
    with pytest.raises(FileNotFoundError):
        disk.list(folder / "absent")
    with pytest.raises(NotADirectoryError):
        disk.list(folder / "a")


def test_folders(disk: Disk, folder: Path) -> None:
    deep = folder / "x" / "y" / "z"
    disk.make_directory(deep)
    disk.make_directory(deep)
    assert disk.is_directory(deep)
    assert disk.exists(deep)
    assert not disk.is_directory(folder / "absent")
    disk.write(folder / "file", b"")
    for path in (folder / "file", folder / "file" / "below"):
        assert not disk.is_directory(path)
        with pytest.raises((FileExistsError, NotADirectoryError)):
            disk.make_directory(path)
    assert not disk.exists(folder / "file" / "below")


def test_replacing(disk: Disk, folder: Path) -> None:
    disk.write(folder / "a", b"new")
    disk.write(folder / "b", b"old")
    disk.replace(folder / "a", folder / "b")
    assert disk.list(folder) == ["b"]
    assert disk.read(folder / "b") == b"new"
    disk.replace(folder / "b", folder / "b")
    assert disk.read(folder / "b") == b"new"
    with pytest.raises(FileNotFoundError):
        disk.replace(folder / "a", folder / "b")
    with pytest.raises(FileNotFoundError):
        disk.replace(folder / "b", folder / "absent" / "b")


def test_replacing_a_folder(disk: Disk, folder: Path) -> None:
    disk.make_directory(folder / "topic-0")
    disk.make_directory(folder / "topic-1")
    disk.write(folder / "topic-0" / "file", b"abc")
    disk.write(folder / "file", b"")
    disk.replace(folder / "topic-0", folder / "topic-0.dead-delete")
    assert disk.list(folder) == ["file", "topic-0.dead-delete", "topic-1"]
    assert disk.read(folder / "topic-0.dead-delete" / "file") == b"abc"
    with pytest.raises(IsADirectoryError):
        disk.replace(folder / "file", folder / "topic-1")
    with pytest.raises(NotADirectoryError):
        disk.replace(folder / "topic-1", folder / "file")
    with pytest.raises(OSError, match="not empty") as caught:
        disk.replace(folder / "topic-1", folder / "topic-0.dead-delete")
    assert caught.value.errno == errno.ENOTEMPTY


def test_removing(disk: Disk, folder: Path) -> None:
    disk.write(folder / "a", b"x")
    disk.remove(folder / "a")
    disk.remove(folder / "a")
    disk.remove(folder / "absent" / "a")
    assert disk.list(folder) == []


def test_removing_a_folder(disk: Disk, folder: Path) -> None:
    disk.make_directory(folder / "x" / "y")
    disk.write(folder / "x" / "a", b"x")
    disk.write(folder / "x" / "y" / "b", b"x")
    disk.remove_directory(folder / "x")
    disk.remove_directory(folder / "x")
    assert disk.list(folder) == []
    disk.write(folder / "file", b"x")
    with pytest.raises(NotADirectoryError):
        disk.remove_directory(folder / "file")


def test_size_and_time_of_what_is_absent(disk: Disk, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.size(folder / "absent")
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(folder / "absent")


def test_time_of_the_last_write_does_not_go_back(disk: Disk, folder: Path) -> None:
    file = create(disk, folder / "file", b"x")
    first = disk.modified_ms(folder / "file")
    file.append(b"y")
    assert disk.modified_ms(folder / "file") >= first > 0
    disk.set_modified_ms(folder / "file", 1_700_000_000_123)
    assert disk.modified_ms(folder / "file") == 1_700_000_000_123
    with pytest.raises(FileNotFoundError):
        disk.set_modified_ms(folder / "absent", 1)
    file.close()


def test_a_lock_is_held_once_until_released(disk: Disk, folder: Path) -> None:
    lock = disk.lock(folder / ".lock")
    other = disk.lock(folder / ".other")
    for _ in range(2):  # a refused attempt must not have loosened the first lock
        with pytest.raises(BlockingIOError) as caught:
            disk.lock(folder / ".lock")
        assert Path(caught.value.filename) == folder / ".lock"
    lock.release()
    lock.release()
    again = disk.lock(folder / ".lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock(folder / ".lock")
    again.release()
    other.release()


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.lists(st.binary(max_size=10), max_size=4),
            st.integers(min_value=0, max_value=60),
        ),
        max_size=12,
    ),
    st.integers(min_value=0, max_value=80),
    st.integers(min_value=0, max_value=80),
)
@pytest.mark.parametrize("make", DISKS)
def test_a_file_is_its_appended_bytes(
    make: Callable[[], Disk],
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[bytes | list[bytes] | int],
    position: int,
    size: int,
) -> None:
    disk = make()
    folder = tmp_path_factory.mktemp("model")
    disk.make_directory(folder)
    file = disk.open(folder / "file", create=True)
    model = b""
    for step in steps:
        if isinstance(step, bytes):
            file.append(step)
            model += step
        elif isinstance(step, list):
            file.append_all(step)
            model += b"".join(step)
        else:
            cut = min(step, len(model))
            file.truncate(cut)
            model = model[:cut]
        assert file.size() == len(model)
    assert file.read_at(position, size) == model[position : position + size]
    assert disk.read(folder / "file") == bytes(disk.map(folder / "file")) == model
    file.close()
