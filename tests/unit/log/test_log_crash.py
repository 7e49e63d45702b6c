"""The power is cut at every step of some work, and every step fails, on the simulated disk."""

from __future__ import annotations

import copy
import errno
from pathlib import Path
from random import Random

import pytest

from ottla.log.checkpoints import CleanShutdownFile
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.errors import LogDirectoryError
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk, Survival, crash_at_every_step
from support.logs.workload import FOREVER_MS, PARTITION, Told, Work, config_of

DIRECTORY = Path("/data")
OPTIONS = DirectoryOptions(broker_id=1, producer_id_expiration_ms=FOREVER_MS)
STEPS = 60


def made(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed, clock=ManualClock())
    disk.make_directory(DIRECTORY)
    disk.sync_all()
    return disk


def started(disk: SimulatedDisk) -> LogDirectories:
    directories = LogDirectories(disk, disk.clock, [DIRECTORY], OPTIONS)
    directories.open(config_of)
    return directories


def work(
    disk: SimulatedDisk, told: Told, seed: int, steps: int = STEPS, name: str = "a", *, go_on: bool = False
) -> LogDirectories:
    """Opens the directory and does something for a while; now and then it is closed and opened again. With `go_on` what
    is refused is followed by the next thing, as long as the directory is online."""
    random = Random(seed)
    clock = disk.clock
    assert isinstance(clock, ManualClock)
    directories = started(disk)
    doing = Work(directories, random, told.hear, advance_ms=clock.advance_ms, name=name)
    doing.create()
    for _ in range(steps):
        clock.advance_ms(1)
        if random.random() < 0.02:
            directories.close()
            if directories.directories[0].failure is not None:
                raise doing.failure()
            if CleanShutdownFile(disk, DIRECTORY).exists():  # a full disk may have kept the stop from being clean
                told.hear(("end", "flush", doing.written and directories.directories[0].logs[PARTITION].next_offset))
            directories = doing.directories = started(disk)
        try:
            doing.step()
        except LogDirectoryError:
            if not go_on or not directories.online():
                raise
            if told.pending is not None and told.pending.end == doing.log.next_offset:
                told.hear(("end", "append", None))  # only what is written beside it was refused
            told.pending = None
    return directories


def judged(disk: SimulatedDisk, told: Told, *, power_cut: bool, context: str) -> LogDirectories:
    """Starts again; what is found must be explainable."""
    try:
        directories = started(disk)
        log = directories.get(PARTITION)
        # Before the first flush a power cut may take the folder; whoever has the topic then makes it again.
        may_be_gone = not told.is_created or (power_cut and told.safe == 0)
        assert log is not None or may_be_gone, "the replica is gone"
        if log is not None:
            told.judge(log, power_cut=power_cut)
    except Exception as error:
        raise AssertionError(f"{context}: {error}") from error
    return directories


@pytest.mark.parametrize("seed", range(5))
def test_the_power_is_cut_at_every_step(seed: int) -> None:
    crashes = 0
    survival = (Survival.SEEDED, Survival.SEEDED, Survival.NOTHING)[seed % 3]

    def run(disk: SimulatedDisk, told: Told) -> None:
        work(disk, told, seed)

    for disk, told in crash_at_every_step(run, Told, make=made, seed=seed * 10_000, survival=survival):
        context = f"seed {seed}, crash {crashes}"
        judged(disk, told, power_cut=True, context=context)
        disk.crash()  # in the middle of nothing: what recovery has repaired must be good for a second time
        disk.restart()
        directories = judged(disk, told, power_cut=True, context=f"{context}, again")
        if crashes % 5 == 0:
            # Life goes on, and the next crash must not bring back what the first one took.
            directories._release_locks()
            disk.crash_before(disk.steps + 150)
            with pytest.raises(BaseException, match=r"power was cut|machine is off"):
                work(disk, told, seed + crashes, 1000, "b")
            disk.restart()
            judged(disk, told, power_cut=True, context=f"{context}, later")
        crashes += 1
    assert crashes > 200


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("seed", range(2))
def test_every_operation_fails(code: int, lasting: bool, seed: int) -> None:
    """The directory goes offline and says why; after a restart nothing that was acknowledged is missing. A disk that is
    full only once keeps nothing offline: work goes on."""
    strikes = offline = 0
    go_on = code == errno.ENOSPC and not lasting
    stride = 2 if code == errno.EIO else 1  # a full disk refuses less
    operation = seed % stride
    while True:
        disk, told = made(operation), Told()
        fault = disk.fail(code, skipped=operation, times=None if lasting else 1)
        context = f"{errno.errorcode[code]} {lasting=} {seed=} {operation=}"
        failure: Exception | None = None
        try:
            work(disk, told, seed, 40, go_on=go_on)
        except (OSError, LogDirectoryError) as error:
            failure = error
        if not fault.strikes:
            break
        strikes += 1
        offline += failure is not None
        assert failure is None or str(DIRECTORY) in str(failure), f"{context}: {failure}"
        disk.heal()
        after_power_cut = disk.after_crash(operation)
        told_before = copy.deepcopy(told)
        disk._locked.clear()  # the process ended
        judged(disk, told, power_cut=False, context=context)
        judged(after_power_cut, told_before, power_cut=True, context=f"{context}, then a power cut")
        operation += stride
    assert strikes > 80
    if go_on:
        assert offline < strikes / 3, "only truncating and making a log must not be left half done"
    else:
        assert offline > strikes * 0.9
