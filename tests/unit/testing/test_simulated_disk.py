"""The fault model of the simulated disk, held against models of its own. That it is a `Disk` is asked elsewhere, by the
contract of all disks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Disk
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import CrashedError, DiskOperation, SimulatedDisk, Survival, crash_at_every_step
from support.examples import examples

FOLDER = Path("/data")
PATH = FOLDER / "file"
SEEDS = st.integers(min_value=0, max_value=2**32)


def made(seed: int = 0, *, zeroed: bool = False) -> SimulatedDisk:
    """A disk with an empty file that is safe."""
    disk = SimulatedDisk(seed, zeroed=zeroed)
    disk.make_directory(FOLDER)
    disk.write(PATH, b"")
    disk.sync_all()
    return disk


# What a power cut leaves of a file


def explains(history: list[bytes], found: bytes) -> bool:
    """Whether a file that went through these states since its last sync can be found like this."""
    return found in history or any(
        found.startswith(before) and after.startswith(found) for before, after in pairwise(history)
    )


Change = bytes | int | None


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Bytes to append, the size to cut to in percent, or None for a sync."""
    return draw(
        st.lists(st.one_of(st.binary(min_size=1, max_size=6), st.integers(0, 100), st.none()), min_size=1, max_size=15)
    )


def apply(disk: Disk, steps: list[Change]) -> list[bytes]:
    """The states of the file since its last sync."""
    file = disk.open(PATH)
    history = [disk.read(PATH)]
    for step in steps:
        if isinstance(step, bytes):
            file.append(step)
        elif step is not None:
            file.truncate(file.size() * step // 100)
        else:
            file.sync()
            history.clear()
        history.append(file.read_at(0, file.size()))
    return history


@settings(deadline=None, max_examples=examples(80))
@given(changes(), SEEDS)
def test_every_state_of_a_file_after_a_crash_is_explainable(steps: list[Change], seed: int) -> None:
    disk = made(seed)
    history = apply(disk, steps)
    disk.crash()
    disk.restart()
    found = disk.read(PATH)
    assert explains(history, found)
    disk.crash()
    disk.restart()
    assert disk.read(PATH) == found, "what a crash has left is safe"


@settings(deadline=None, max_examples=examples(80))
@given(changes(), SEEDS)
def test_zeros_are_found_only_among_bytes_that_were_not_synced(steps: list[Change], seed: int) -> None:
    disk = made(seed, zeroed=True)
    history = apply(disk, steps)
    safe = min(len(state) for state in history)
    found = disk.after_crash(seed).read(PATH)
    candidates = [before + after[len(before) :][:size] for before, after in pairwise(history) for size in range(7)]
    assert any(
        len(found) == len(whole)
        and found[:safe] == whole[:safe]
        and all(byte in (0, right) for byte, right in zip(found, whole, strict=True))
        for whole in (*history, *candidates)
    )


def test_zeros_are_found_at_the_end_and_in_the_middle() -> None:
    disk = made(zeroed=True)
    file = disk.open(PATH)
    file.append(b"safe")
    file.sync()
    file.append(b"12345678")
    found = {disk.after_crash(seed).read(PATH) for seed in range(300)}
    assert all(state.startswith(b"safe") for state in found)
    assert b"safe1234\0\0\0\0" in found
    assert any(b"\0" in state and state.endswith(b"8") for state in found)


def test_bytes_appended_after_a_cut_may_be_zeros_from_the_cut_on() -> None:
    disk = made(zeroed=True)
    file = disk.open(PATH)
    file.append(b"abcdef")
    file.sync()
    file.truncate(1)
    file.append(b"XYZ")
    found = {disk.after_crash(seed).read(PATH) for seed in range(300)}
    assert b"a\0\0\0" in found
    assert {state[:1] for state in found} == {b"a"}


@settings(deadline=None)
@given(changes(), SEEDS)
def test_the_extremes_can_be_asked_for(steps: list[Change], seed: int) -> None:
    disk = made(seed, zeroed=True)
    history = apply(disk, steps)
    assert disk.after_crash(seed, Survival.NOTHING).read(PATH) == history[0]
    assert disk.after_crash(seed, Survival.EVERYTHING).read(PATH) == history[-1]
    assert disk.read(PATH) == history[-1], "this disk did not crash"


def test_every_explainable_state_is_found_by_some_seed() -> None:
    disk = made()
    file = disk.open(PATH)
    file.append(b"abc")
    file.sync()
    file.truncate(1)
    file.append(b"XY")
    file.append(b"Z")
    found = {disk.after_crash(seed).read(PATH) for seed in range(200)}
    assert found == {b"abc", b"a", b"aX", b"aXY", b"aXYZ"}


# What a power cut leaves of a folder


NAMES = st.sampled_from(["a", "b", "c"])


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), NAMES),
            st.tuples(st.just("remove"), NAMES),
            st.tuples(NAMES, NAMES),
            st.none(),
        ),
        max_size=15,
    ),
    SEEDS,
)
def test_every_state_of_a_folder_after_a_crash_is_one_that_it_had(
    steps: list[tuple[str, str] | None], seed: int
) -> None:
    disk = made(seed)

    def seen(disk: SimulatedDisk) -> dict[str, bytes]:
        return {path.name: data for path, data in disk.contents().items()}

    history = [seen(disk)]
    for number, step in enumerate(steps):
        if step is None:
            disk.sync_directory(FOLDER)
            history.clear()
        elif step[0] == "write":
            # Under a name of its own first: this test is about names, so no content may be half there.
            disk.write(FOLDER / "new", b"%d" % number)
            disk.open(FOLDER / "new").sync()
            history.append(seen(disk))
            disk.replace(FOLDER / "new", FOLDER / step[1])
        elif step[0] == "remove":
            disk.remove(FOLDER / step[1])
        elif disk.exists(FOLDER / step[0]):
            disk.replace(FOLDER / step[0], FOLDER / step[1])
        history.append(seen(disk))
    # A name comes into being before the bytes do, so an empty new file is a state of its own.
    history += [{**state, "new": b""} for state in history if "new" in state]
    assert seen(disk.after_crash(seed)) in history
    assert seen(disk.after_crash(seed, Survival.NOTHING)) == history[0]


def test_a_synced_file_is_lost_with_its_name() -> None:
    disk = made()
    file = disk.open(FOLDER / "new", create=True)
    file.append(b"abc")
    file.sync()
    found = {disk.after_crash(seed).contents().get(FOLDER / "new") for seed in range(50)}
    assert found == {None, b"abc"}
    disk.sync_directory(FOLDER)
    assert disk.after_crash(0, Survival.NOTHING).read(FOLDER / "new") == b"abc"


def test_a_folder_is_lost_with_all_that_is_in_it_and_comes_back_with_it() -> None:
    disk = made()
    disk.make_directory(FOLDER / "x")
    disk.write(FOLDER / "x" / "file", b"abc")
    disk.open(FOLDER / "x" / "file").sync()
    disk.sync_directory(FOLDER / "x")
    assert not disk.after_crash(0, Survival.NOTHING).exists(FOLDER / "x")
    disk.sync_directory(FOLDER)
    disk.remove_directory(FOLDER / "x")
    outcomes = {tuple(sorted(disk.after_crash(seed).contents())) for seed in range(50)}
    assert outcomes == {(PATH,), (PATH, FOLDER / "x" / "file")}
    disk.sync_directory(FOLDER)
    assert {tuple(disk.after_crash(seed).contents()) for seed in range(50)} == {(PATH,)}


def test_a_removed_file_comes_back_with_its_bytes() -> None:
    disk = made()
    disk.write_atomically(PATH, b"old")
    disk.remove(PATH)
    disk.write(PATH, b"new")
    found = {disk.after_crash(seed).contents().get(PATH) for seed in range(200)}
    assert found == {b"old", None, b"", b"n", b"ne", b"new"}


# Crashing on the way


def test_an_atomic_write_leaves_the_old_or_the_new_wherever_it_is_cut() -> None:
    def run(disk: SimulatedDisk, done: list[bytes]) -> None:
        for data in (b"first", b"second"):
            disk.write_atomically(PATH, data)
            done.append(data)

    found = set()
    for seed in range(20):
        for disk, done in crash_at_every_step(run, list[bytes], make=made, seed=seed * 1000):
            data = disk.read(PATH)
            found.add(data)
            assert data in {0: (b"", b"first"), 1: (b"first", b"second"), 2: (b"second",)}[len(done)]
    assert found == {b"", b"first", b"second"}


def test_a_replace_without_a_sync_is_detected() -> None:
    def run(disk: SimulatedDisk, _: list[bytes]) -> None:
        disk.write(FOLDER / "file.tmp", b"new")
        disk.replace(FOLDER / "file.tmp", PATH)
        disk.sync_directory(FOLDER)

    def make(seed: int) -> SimulatedDisk:
        disk = made(seed)
        disk.write(PATH, b"old")
        disk.sync_all()
        return disk

    found = {
        disk.read(PATH)
        for seed in range(30)
        for disk, _ in crash_at_every_step(run, list[bytes], make=make, seed=seed * 1000)
    }
    assert b"" in found, "neither the old nor the new"


def test_a_run_is_crashed_before_each_of_its_steps_and_after_the_last() -> None:
    begun: list[int] = []

    def run(disk: SimulatedDisk, _: list[bytes]) -> None:
        begun.append(0)
        file = disk.open(PATH)
        for _number in range(3):
            file.append(b"x")
            begun[-1] += 1
            file.read_at(0, 1)
            file.sync()
            begun[-1] += 1

    disks = [disk for disk, _ in crash_at_every_step(run, list[bytes], make=made)]
    assert begun == [0, 1, 2, 3, 4, 5, 6]
    assert [len(disk.read(PATH)) for disk in disks][::2] == [0, 1, 2, 3]
    begun.clear()
    assert len(list(crash_at_every_step(run, list[bytes], make=made, stride=4))) == 3
    assert begun == [0, 4, 6]


@pytest.mark.parametrize(("survival", "sizes"), [(Survival.NOTHING, [0, 0, 0]), (Survival.EVERYTHING, [0, 1, 2])])
def test_how_much_survives_each_step_can_be_asked_for(survival: Survival, sizes: list[int]) -> None:
    def run(disk: SimulatedDisk, _: list[bytes]) -> None:
        file = disk.open(PATH)
        file.append(b"x")
        file.append(b"y")

    for seed in range(10):
        crashed = crash_at_every_step(run, list[bytes], make=made, seed=seed * 1000, survival=survival)
        assert [disk.size(PATH) for disk, _ in crashed] == sizes


def test_swallowing_a_crash_is_detected() -> None:
    def run(disk: SimulatedDisk, _: list[bytes]) -> None:
        try:
            disk.write(PATH, b"x")
        except BaseException:
            return

    with pytest.raises(RuntimeError, match="swallowed"):
        list(crash_at_every_step(run, list[bytes], make=made))


def test_from_the_crash_on_everything_raises_until_the_restart() -> None:
    disk = made()
    file = disk.open(PATH)
    file.append(b"abc")
    lock = disk.lock(FOLDER / ".lock")
    disk.sync_all()
    disk.crash_before(disk.steps + 1)
    file.append(b"def")
    with pytest.raises(CrashedError, match="before step"):
        file.append(b"ghi")
    assert disk.is_off
    acts: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.append_all([b"x"]),
        lambda: file.read_at(0, 1),
        lambda: file.truncate(0),
        file.sync,
        lambda: disk.open(PATH),
        lambda: disk.open(FOLDER / "absent", create=True),
        lambda: disk.map(PATH),
        lambda: disk.read(PATH),
        lambda: disk.write(PATH, b""),
        lambda: disk.write_atomically(PATH, b""),
        lambda: disk.exists(PATH),
        lambda: disk.size(PATH),
        lambda: disk.modified_ms(PATH),
        lambda: disk.list(FOLDER),
        lambda: disk.is_directory(FOLDER),
        lambda: disk.make_directory(FOLDER),
        lambda: disk.replace(FOLDER / "absent", PATH),
        lambda: disk.remove(FOLDER / "absent"),
        lambda: disk.remove_directory(FOLDER / "absent"),
        lambda: disk.sync_directory(FOLDER),
        lambda: disk.lock(FOLDER / ".lock"),
    ]
    for act in acts:
        with pytest.raises(CrashedError):
            act()
    file.close()
    disk.restart()
    with pytest.raises(CrashedError, match="was open when"):
        file.append(b"x")
    again = disk.lock(FOLDER / ".lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock(FOLDER / ".lock")
    again.release()
    assert disk.read(PATH).startswith(b"abc")


def test_a_crash_is_no_exception() -> None:
    assert not issubclass(CrashedError, Exception)


def test_a_step_that_is_over_cannot_be_crashed() -> None:
    disk = made()
    with pytest.raises(ValueError, match="is over"):
        disk.crash_before(disk.steps - 1)


# Failures


def test_the_nth_operation_fails_so_many_times() -> None:
    disk = made()
    fault = disk.fail(errno.EIO, skipped=2, times=2)
    disk.exists(PATH)
    disk.read(PATH)
    for act in (lambda: disk.read(PATH), lambda: disk.list(FOLDER)):
        with pytest.raises(OSError, match="data") as caught:
            act()
        assert caught.value.errno == errno.EIO
    disk.read(PATH)
    assert fault.strikes == 2


def test_a_predicate_picks_what_fails_until_it_is_healed() -> None:
    disk = made()
    disk.fail(when=lambda operation, path: operation is DiskOperation.REPLACE and path == PATH, times=None)
    for _ in range(3):
        with pytest.raises(OSError, match="file") as caught:
            disk.write_atomically(PATH, b"new")
        assert caught.value.filename == str(PATH)
    disk.write_atomically(FOLDER / "other", b"x")
    assert disk.list(FOLDER) == ["file", "other"]
    disk.heal()
    disk.write_atomically(PATH, b"new")
    assert disk.read(PATH) == b"new"


def test_an_append_to_a_full_disk_may_be_there_in_part() -> None:
    sizes = set()
    for seed in range(40):
        disk = made(seed)
        file = disk.open(PATH)
        disk.fail(errno.ENOSPC, times=None)
        with pytest.raises(OSError, match="file") as caught:
            file.append(b"abcd")
        assert caught.value.errno == errno.ENOSPC
        assert b"abcd".startswith(disk.read(PATH))
        sizes.add(file.size())
        file.truncate(0)  # needs no space
        file.sync()
        with pytest.raises(OSError, match="new"):
            disk.open(FOLDER / "new", create=True)
        assert disk.contents() == {PATH: b""}
    assert sizes == {0, 1, 2, 3}


def test_what_a_failed_sync_left_behind_no_later_sync_makes_safe() -> None:
    found = set()
    for seed in range(60):
        disk = made(seed)
        file = disk.open(PATH)
        file.append(b"safe")
        file.sync()
        file.append(b"abc")
        disk.fail(errno.EIO, when=DiskOperation.SYNC)
        with pytest.raises(OSError, match="file"):
            file.sync()
        assert disk.read(PATH) == b"safeabc", "the cache still has it"
        file.append(b"later")
        file.sync()
        disk.crash()
        disk.restart()
        found.add(disk.read(PATH))
    assert found == {b"safeabclater", b"safeab\0later", b"safea\0\0later", b"safe\0\0\0later"}


def test_a_failed_sync_loses_from_one_byte_on() -> None:
    found = set()
    for seed in range(80):
        disk = made(seed)
        file = disk.open(PATH)
        file.append(b"ab")
        file.append(b"cd")
        disk.fail(when=DiskOperation.SYNC)
        with pytest.raises(OSError, match="file"):
            file.sync()
        file.sync()
        found.add(disk.after_crash(seed, Survival.NOTHING).read(PATH))
    assert found == {b"abcd", b"abc\0", b"ab\0\0", b"a\0\0\0", b"\0\0\0\0"}


def test_a_restart_forgets_faults_and_planned_crashes() -> None:
    disk = made()
    disk.fail(times=None)
    disk.crash_before(disk.steps)
    disk.crash()
    disk.restart()
    disk.write_atomically(PATH, b"x")
    assert disk.read(PATH) == b"x"


def test_a_failed_sync_of_a_folder_leaves_its_names_in_doubt() -> None:
    disk = made()
    disk.write(FOLDER / "new", b"")
    disk.fail(when=DiskOperation.SYNC_DIRECTORY)
    with pytest.raises(OSError, match="data"):
        disk.sync_directory(FOLDER)
    assert {disk.after_crash(seed).exists(FOLDER / "new") for seed in range(30)} == {True, False}


# The rest


def test_the_hook_sees_every_operation_in_its_grain() -> None:
    disk = made()
    seen: list[tuple[DiskOperation, str]] = []
    disk.before = lambda operation, path: seen.append((operation, path.name))
    disk.write_atomically(PATH, b"x")
    assert seen == [
        (DiskOperation.CREATE, "file.tmp"),
        (DiskOperation.APPEND, "file.tmp"),
        (DiskOperation.SYNC, "file.tmp"),
        (DiskOperation.REPLACE, "file"),
        (DiskOperation.SYNC_DIRECTORY, "data"),
    ]
    seen.clear()
    disk.make_directory(FOLDER / "x" / "y")
    disk.write(FOLDER / "x" / "y" / "z", b"old")
    disk.write(FOLDER / "x" / "y" / "z", b"new")
    disk.remove_directory(FOLDER / "x")
    assert seen == [
        (DiskOperation.MAKE_DIRECTORY, "x"),
        (DiskOperation.MAKE_DIRECTORY, "y"),
        (DiskOperation.CREATE, "z"),
        (DiskOperation.APPEND, "z"),
        (DiskOperation.TRUNCATE, "z"),
        (DiskOperation.APPEND, "z"),
        (DiskOperation.REMOVE, "z"),
        (DiskOperation.REMOVE_DIRECTORY, "y"),
        (DiskOperation.REMOVE_DIRECTORY, "x"),
    ]


def test_the_hook_may_look_crash_and_raise() -> None:
    disk = made()
    looked: list[bytes] = []

    def crash_at_sync(operation: DiskOperation, path: Path) -> None:
        looked.append(disk.read(PATH))
        if operation is DiskOperation.SYNC:
            disk.crash(Survival.NOTHING)
        if path.name == "refused":
            raise PermissionError(errno.EACCES, "refused", str(path))

    disk.before = crash_at_sync
    with pytest.raises(PermissionError):
        disk.write(FOLDER / "refused", b"")
    file = disk.open(PATH)
    file.append(b"abc")
    steps = disk.steps
    with pytest.raises(CrashedError):
        file.sync()
    assert disk.steps == steps
    assert looked == [b"", b"", b"", b"abc"]
    disk.before = None
    disk.restart()
    assert disk.read(PATH) == b""


@settings(deadline=None)
@given(changes(), SEEDS, st.data())
def test_a_flipped_bit_stays_flipped_and_is_the_only_one(steps: list[Change], seed: int, data: st.DataObject) -> None:
    disk = made(seed)
    state = apply(disk, steps)[-1]
    if not state:
        return
    position = data.draw(st.integers(0, len(state) - 1))
    bit = data.draw(st.integers(0, 7))
    expected = bytearray(state)
    expected[position] ^= 1 << bit
    assert disk.flip_bit(PATH, position, bit) == position
    assert disk.read(PATH) == expected
    assert disk.after_crash(seed, Survival.EVERYTHING).read(PATH) == expected
    disk.open(PATH).sync()
    assert disk.after_crash(seed, Survival.NOTHING).read(PATH) == expected


def test_a_flipped_bit_is_drawn_where_not_given() -> None:
    found = set()
    for seed in range(200):
        disk = made(seed)
        disk.write(PATH, bytes(2))
        position = disk.flip_bit(PATH)
        assert disk.read(PATH)[position].bit_count() == 1
        assert disk.read(PATH)[1 - position] == 0
        found.add(disk.read(PATH))
    assert len(found) == 16


@settings(deadline=None, max_examples=examples(30))
@given(changes(), SEEDS)
def test_the_seed_decides(steps: list[Change], seed: int) -> None:
    def story(seed: int) -> list[dict[Path, bytes]]:
        disk = made(seed, zeroed=True)
        chapters = []
        for number in range(3):
            apply(disk, steps)
            disk.write(FOLDER / f"new{number}", b"abc")
            disk.crash()
            disk.restart()
            disk.write(PATH, disk.contents().get(PATH, b""))
            chapters.append(disk.contents())
        return chapters

    assert story(seed) == story(seed)


def test_other_seeds_tell_other_stories() -> None:
    disk = made()
    disk.write(PATH, bytes(range(100)))
    assert len({disk.after_crash(seed).read(PATH) for seed in range(50)}) > 10


def test_file_times_come_from_the_clock() -> None:
    clock = ManualClock(now_ms=1_000)
    disk = SimulatedDisk(clock=clock)
    disk.make_directory(FOLDER)
    disk.write(PATH, b"x")
    clock.advance_ms(5)
    assert disk.modified_ms(PATH) == 1_000
    disk.open(PATH).append(b"y")
    assert disk.modified_ms(PATH) == 1_005


def test_moving_from_folder_to_folder_is_refused() -> None:
    disk = made()
    disk.make_directory(FOLDER / "x")
    with pytest.raises(OSError, match="file") as caught:
        disk.replace(PATH, FOLDER / "x" / "file")
    assert caught.value.errno == errno.EXDEV
    assert disk.contents() == {PATH: b""}


def test_a_simulated_file_has_no_descriptor() -> None:
    with pytest.raises(OSError, match="file") as caught:
        made().open(PATH).fileno()
    assert caught.value.errno == errno.ENOTSUP
