"""Starting, watching and stopping the processes of a local cluster, with processes that are not real."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.local_cluster import launcher as launcher_module
from ottla.cli.local_cluster.launcher import Launcher, Process, TreeSight
from ottla.cli.local_cluster.plan import ProcessPlan, plan_cluster
from ottla.cli.local_cluster.screen import Lines
from ottla.cli.local_cluster.state import ClusterState, Phase
from ottla.cli.session import CommandError

WAIT_S = 10.0


class FakeProcess:
    """Serves at once, and ends as it is told."""

    def __init__(self, plan: ProcessPlan, journal: list[str], *, says: str | None = None, is_stubborn: bool = False):
        self.plan = plan
        self.returncode: int | None = None
        self._journal = journal
        self._is_stubborn = is_stubborn
        self._ended = asyncio.Event()
        server = "ZooKeeper" if plan.broker_id is None else "Ottla"
        self.say(says or f"{server} is ready at {plan.address}")

    def say(self, text: str) -> None:
        with self.plan.log_file.open("a") as file:
            file.write(f"{text}\n")

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def send_signal(self, signal: int) -> None:
        self._journal.append(f"{self.plan.name} {signal_name(signal)}")
        if signal == 9:
            self.end(-9)
        elif not self._is_stubborn:
            self.end(0)

    async def wait(self) -> int:
        await self._ended.wait()
        return self.returncode or 0


def signal_name(number: int) -> str:
    return signal.Signals(number).name


class Shown(Lines):
    """Keeps what was told."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self.told: list[str] = []

    def tell(self, text: str) -> None:
        self.told.append(text)


class Stage:
    """A launcher of three brokers, and what happens around it."""

    def __init__(self, directory: Path) -> None:
        self.plan = plan_cluster(3, directory, {})
        self.plan.write()
        self.state = ClusterState.of(self.plan)
        self.display = Shown(self.state)
        self.journal: list[str] = []
        self.processes: dict[str, FakeProcess] = {}
        self.sight: TreeSight | None = None
        self.says: dict[str, str] = {}
        self.stubborn: set[str] = set()
        self.launcher = Launcher(self.plan, self.state, self.display, self, self.spawn)

    async def spawn(self, plan: ProcessPlan) -> Process:
        self.journal.append(f"{plan.name} started")
        plan.log_file.unlink(missing_ok=True)
        process = FakeProcess(plan, self.journal, says=self.says.get(plan.name), is_stubborn=plan.name in self.stubborn)
        self.processes[plan.name] = process
        if plan.name in self.says:
            process.end(1)
        return process

    async def close(self) -> None:
        self.journal.append("tree closed")

    def elect(self, controller: int) -> None:
        self.sight = TreeSight({1: 11, 2: 12, 3: 13}, controller)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.001)

    def phases(self) -> list[Phase]:
        return [member.phase for member in self.state.members]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "_LOOK_EVERY_S", 0.001)


def test_zookeeper_starts_first_and_stops_last(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.elect(2)
        await stage.until(lambda: stage.display.told[-1].startswith("Ottla is ready"))
        stage.launcher.interrupt()
        assert await running == 0
        brokers = [f"broker {number}" for number in (1, 2, 3)]
        assert stage.journal == [
            "ZooKeeper started",
            *(f"{name} started" for name in brokers),
            *(f"{name} SIGTERM" for name in brokers),
            "tree closed",
            "ZooKeeper SIGTERM",
        ]
        assert set(stage.phases()) == {Phase.STOPPED}
        assert "broker 2 is the controller" in stage.display.told
        assert f"Ottla is ready at {stage.plan.bootstrap}" in stage.display.told

    asyncio.run(work())


def test_a_broker_that_ends_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.elect(1)
        await stage.until(lambda: stage.state.brokers[1].is_registered)
        stage.processes["broker 2"].end(-9)
        await stage.until(lambda: stage.state.brokers[1].phase is Phase.ENDED)
        (told,) = (text for text in stage.display.told if text.startswith("broker 2 ended by SIGKILL."))
        assert "broker-2.log" in told
        assert "ottla start" in told
        assert "broker-2.properties" in told
        assert not running.done()
        assert stage.state.brokers[1].shown == "ended by SIGKILL"  # although its session has not expired yet
        stage.sight = TreeSight({1: 11, 2: 22, 3: 13}, 1)
        await stage.until(lambda: stage.state.brokers[1].shown == "started by hand")
        stage.launcher.interrupt()
        assert await running == 0
        assert "broker 2 SIGTERM" not in stage.journal

    asyncio.run(work())


def test_warnings_are_told_with_the_name_of_the_process(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.processes["broker 3"].say("2026-01-01 00:00:00,000 WARNING usual while a cluster starts")
        stage.processes["broker 3"].say("2026-01-01 00:00:00,000 ERROR   disk failed")
        await stage.until(lambda: "broker 3: error: disk failed" in stage.display.told)
        stage.elect(1)
        await stage.until(lambda: stage.display.told[-1].startswith("Ottla is ready"))
        stage.processes["broker 3"].say("2026-01-01 00:00:00,000 WARNING disk almost full")
        stage.processes["broker 3"].say("2026-01-01 00:00:00,000 INFO    nothing of interest")
        await stage.until(lambda: "broker 3: warning: disk almost full" in stage.display.told)
        stage.launcher.interrupt()
        await running
        assert not [text for text in stage.display.told if "nothing" in text or "usual" in text]

    asyncio.run(work())


def test_the_log_of_an_earlier_run_is_not_read(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        for broker in stage.plan.brokers:
            broker.log_file.write_text("Error: Of yesterday.\n")
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.launcher.interrupt()
        await running
        assert not [text for text in stage.display.told if "yesterday" in text]

    asyncio.run(work())


def test_a_zookeeper_that_does_not_start_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        stage.says["ZooKeeper"] = "Error: The disk is full."
        with pytest.raises(CommandError, match=r"ZooKeeper did not start: The disk is full\. Its log is"):
            await stage.launcher.run()
        assert stage.journal == ["ZooKeeper started", "tree closed"]
        assert not [text for text in stage.display.told if "keep serving" in text]  # no broker was started

    asyncio.run(work())


def test_the_command_ends_when_no_broker_is_left(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        stage.says |= {f"broker {number}": "Error: No." for number in (1, 2, 3)}
        with pytest.raises(CommandError, match="no broker is running"):
            await stage.launcher.run()
        assert stage.journal[-1] == "ZooKeeper SIGTERM"
        assert "broker 1: error: No." in stage.display.told

    asyncio.run(work())


def test_a_second_interrupt_kills_what_is_left(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        stage.stubborn = {"broker 2"}
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.launcher.interrupt()
        await stage.until(lambda: stage.state.brokers[0].phase is Phase.STOPPED)
        assert stage.state.brokers[1].phase is Phase.STOPPING
        stage.launcher.interrupt()
        assert await running == 1
        assert stage.journal[-3:] == ["broker 2 SIGKILL", "tree closed", "ZooKeeper SIGTERM"]

    asyncio.run(work())


def test_a_broker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "_STOP_BROKERS_S", 0.01)

    async def work() -> None:
        stage = Stage(tmp_path)
        stage.stubborn = {"broker 1"}
        running = asyncio.create_task(stage.launcher.run())
        await stage.until(lambda: set(stage.phases()) == {Phase.RUNNING})
        stage.launcher.interrupt()
        assert await running == 1
        assert stage.journal[-3:] == ["broker 1 SIGKILL", "tree closed", "ZooKeeper SIGTERM"]

    asyncio.run(work())


def test_an_interrupt_while_zookeeper_starts_starts_no_broker(tmp_path: Path) -> None:
    async def work() -> None:
        stage = Stage(tmp_path)
        stage.launcher.interrupt()
        assert await stage.launcher.run() == 0
        assert stage.journal == ["ZooKeeper started", "tree closed", "ZooKeeper SIGTERM"]

    asyncio.run(work())
