"""Starts the processes of a local cluster, watches them, and stops them.

ZooKeeper starts first and stops last; the brokers start and stop together. The first interrupt stops everything with
SIGTERM, the second kills it. A process that ends by itself is reported, and the others go on; when no broker is left,
the cluster stops. Runs on one loop, which looks at log files and processes a few times a second.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from ottla.cli.local_cluster.log_tail import LogTail, complaint_of, last_complaint
from ottla.cli.local_cluster.member import command
from ottla.cli.local_cluster.plan import ClusterPlan, ProcessPlan
from ottla.cli.local_cluster.screen import READY, Display
from ottla.cli.local_cluster.state import ALIVE, ClusterState, MemberState, Phase, explain_end, shown_path
from ottla.cli.session import CommandError

_LOOK_EVERY_S: Final = 0.1
_STOP_BROKERS_S: Final = 60.0
_STOP_ZOOKEEPER_S: Final = 15.0
_ORPHAN_GRACE_S: Final = 5.0
"""How long ZooKeeper outlives a launcher that was killed, so that the brokers can stop cleanly."""
_READY_LINES: Final = ("Ottla is ready at ", "ZooKeeper is ready at ")


class ZooKeeperEndedError(CommandError):
    """ZooKeeper did not start; nothing else was started."""


class TreeSight(NamedTuple):
    """What ZooKeeper says of the cluster."""

    registered: Mapping[int, int]
    """The epochs of brokers by id."""
    controller: int | None


class Process(Protocol):
    """What the launcher needs of `asyncio.subprocess.Process`."""

    @property
    def returncode(self) -> int | None: ...
    def send_signal(self, signal: int) -> None: ...
    async def wait(self) -> int: ...


Spawn = Callable[[ProcessPlan], Awaitable[Process]]


class Tree(Protocol):
    """ZooKeeper, as the launcher sees it."""

    @property
    def sight(self) -> TreeSight | None:
        """The last one; None if ZooKeeper does not answer."""

    async def close(self) -> None:
        """Before ZooKeeper stops."""


async def spawn(plan: ProcessPlan) -> Process:
    """Starts a process with its output in its log file. The log of the run before is kept with the suffix .1."""
    if plan.log_file.exists():
        plan.log_file.replace(plan.log_file.with_name(f"{plan.log_file.name}.1"))
    with plan.log_file.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *command(plan.arguments, _ORPHAN_GRACE_S if plan.broker_id is None else 0.0),
            stdin=asyncio.subprocess.PIPE,  # its end tells the process that this one is gone
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C goes to this process, which then stops it
        )


class _Member:
    """A process, its log, and its state."""

    def __init__(self, state: MemberState) -> None:
        self.state = state
        self.process: Process | None = None
        self.tail = LogTail(state.plan.log_file)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.is_alive:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Launcher:
    """See the module. `run` once."""

    def __init__(
        self, plan: ClusterPlan, state: ClusterState, display: Display, tree: Tree, spawn: Spawn = spawn
    ) -> None:
        self._plan = plan
        self._state = state
        self._display = display
        self._tree = tree
        self._spawn = spawn
        self._zookeeper = _Member(state.zookeeper)
        self._brokers = [_Member(broker) for broker in state.brokers]
        self._interrupts = 0
        self._was_killed = False
        self._is_told_ready = False

    def interrupt(self) -> None:
        """Stops the cluster; called again, kills it."""
        self._interrupts += 1

    async def run(self) -> int:
        """Returns the exit code: 0 if everything stopped cleanly. Raises `CommandError` if the cluster cannot run."""
        try:
            await self._launch([self._zookeeper])
            await self._until(lambda: self._interrupts or self._zookeeper.state.phase is not Phase.STARTING)
            if self._zookeeper.state.phase is Phase.ENDED:
                raise ZooKeeperEndedError(_why(self._zookeeper.state))
            if not self._interrupts:
                await self._launch(self._brokers)
                await self._until(lambda: self._interrupts or not any(broker.is_alive for broker in self._brokers))
                if not self._interrupts:
                    raise CommandError("no broker is running any more. " + self._hint())
        finally:
            await self._stop()
        return 1 if self._was_killed else 0

    def _hint(self) -> str:
        return f"The messages above and the logs in {shown_path(self._plan.directory)} say why."

    async def _launch(self, members: Iterable[_Member]) -> None:
        for member in members:
            member.process = await self._spawn(member.state.plan)
            member.state.phase = Phase.STARTING

    async def _until(self, condition: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Looks at everything until the condition holds; False after the timeout."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._look_around()
            if condition():
                return True
            if deadline_s is not None and time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)

    def _look_around(self) -> None:
        for member in (self._zookeeper, *self._brokers):
            self._look_at(member)
        sight = self._tree.sight
        told = self._state.see(None, None) if sight is None else self._state.see(*sight)
        if told is not None:
            self._display.step(told)
        if self._state.is_settled and not self._is_told_ready:
            self._is_told_ready = True
            self._display.step(f"{READY} {self._state.bootstrap}")
        self._display.refresh(self._state)

    def _look_at(self, member: _Member) -> None:
        state = member.state
        if member.process is None:
            return  # the log is that of an earlier run
        has_ended = not member.is_alive  # before its log is read for the last time
        for line in member.tail.lines():
            if state.phase is Phase.STARTING and (address := _ready_address(line)) is not None:
                state.phase, state.address = Phase.RUNNING, address
                self._display.step(f"{state.plan.name} is ready at {address}")
            elif (complaint := complaint_of(line)) is not None:
                if not complaint.is_error and (state.phase is Phase.STOPPING or not self._is_told_ready):
                    continue  # brokers that start or stop together miss each other; the log has it
                self._display.warn(state.plan.name, complaint.text, is_error=complaint.is_error)
        if has_ended and state.phase in ALIVE:
            state.code = member.process.returncode
            phase = state.phase
            is_wanted = phase is Phase.STOPPING
            state.phase = Phase.STOPPED if is_wanted else Phase.ENDED
            if not is_wanted and not (state is self._state.zookeeper and phase is Phase.STARTING):  # `run` raises then
                self._display.tell(explain_end(state))

    async def _stop(self) -> None:
        """Brokers first: they hand over their leaders and close their sessions with ZooKeeper."""
        self._display.step("Stopping …")
        for broker in self._state.brokers:
            if broker.is_by_hand:
                self._display.tell(f"{broker.plan.name} was started by hand: stop it yourself; its ZooKeeper stops now")
        await self._stop_all(self._brokers, _STOP_BROKERS_S)
        await self._tree.close()
        await self._stop_all([self._zookeeper], _STOP_ZOOKEEPER_S)
        for member in (self._zookeeper, *self._brokers):
            member.tail.close()
        self._display.step(f"Stopped. The data is in {shown_path(self._plan.directory)}.")

    async def _stop_all(self, members: Collection[_Member], timeout_s: float) -> None:
        alive = [member for member in members if member.is_alive]
        for member in alive:
            member.state.phase = Phase.STOPPING
            member.signal(signal.SIGTERM)
        has_ended = await self._until(
            lambda: self._interrupts > 1 or not any(member.is_alive for member in alive), timeout_s
        )
        left = [member for member in alive if member.is_alive]
        if not left:
            self._look_around()
            return
        why = "" if has_ended else f" after {timeout_s:.0f} s"
        for member in left:
            self._was_killed = True
            self._display.tell(f"{member.state.plan.name} is killed{why}; its next start recovers its logs")
            member.signal(signal.SIGKILL)
        for member in left:
            if member.process is not None:
                await member.process.wait()
        self._look_around()


def _ready_address(line: str) -> str | None:
    for start in _READY_LINES:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    return None


def _why(state: MemberState) -> str:
    reason = last_complaint(state.plan.log_file)
    log = f"Its log is {shown_path(state.plan.log_file)}."
    return f"{state.plan.name} did not start: {reason} {log}" if reason else f"{state.plan.name} did not start. {log}"
