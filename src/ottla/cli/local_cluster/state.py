"""What is known of the processes of a local cluster, and what to tell people when it changes. No I/O.

WAITING ──▶ STARTING ──▶ RUNNING ──▶ STOPPING ──▶ STOPPED
                └────────────┴──▶ ENDED (by itself)
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ottla.cli.local_cluster.plan import ClusterPlan, ProcessPlan


class Phase(Enum):
    """See the module. The values are shown to people."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDED = "ended"


ALIVE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})


@dataclass(slots=True)
class MemberState:
    """One process."""

    plan: ProcessPlan
    address: str
    phase: Phase = Phase.WAITING
    code: int | None = None
    """Its exit code; negative for a signal."""
    is_registered: bool | None = None
    """In ZooKeeper; None if that is not known."""
    own_epoch: int | None = None
    """The broker epoch of the process: a registration with another one is that of a process started by hand."""
    is_by_hand: bool = False
    is_controller: bool = False

    @property
    def shown(self) -> str:
        """The phase, in words."""
        if self.phase is Phase.ENDED:
            if self.is_by_hand:
                return "started by hand"
            return ending(self.code)
        if self.phase is Phase.RUNNING and self.is_registered is False:
            return "running, not registered in ZooKeeper"
        return str(self.phase.value)


@dataclass(slots=True)
class ClusterState:
    """All processes."""

    zookeeper: MemberState
    brokers: list[MemberState]
    controller: int | None = field(default=None)

    @classmethod
    def of(cls, plan: ClusterPlan) -> ClusterState:
        zookeeper = MemberState(plan.zookeeper, plan.zookeeper.address)
        return cls(zookeeper, [MemberState(broker, broker.address) for broker in plan.brokers])

    @property
    def members(self) -> list[MemberState]:
        return [self.zookeeper, *self.brokers]

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(broker.address for broker in self.brokers if broker.phase is Phase.RUNNING)

    @property
    def is_settled(self) -> bool:
        """Whether the start is over: every broker runs or has failed, and there is a controller."""
        phases = {broker.phase for broker in self.brokers}
        return Phase.RUNNING in phases and not phases & {Phase.WAITING, Phase.STARTING} and self.controller is not None

    def see(self, registered: Mapping[int, int] | None, controller: int | None) -> str | None:
        """What ZooKeeper says now: broker epochs by id, and the controller. `registered` is None if it does not answer.
        Returns what to tell."""
        for broker in self.brokers:
            number = -1 if broker.plan.broker_id is None else broker.plan.broker_id
            epoch = None if registered is None else registered.get(number)
            broker.is_registered = None if registered is None else epoch is not None
            broker.is_controller = number == controller
            if epoch is not None and broker.phase in ALIVE:
                broker.own_epoch = epoch
            # The registration of a process that was killed stays until its session expires.
            broker.is_by_hand = broker.phase is Phase.ENDED and epoch not in (None, broker.own_epoch)
        before, self.controller = self.controller, controller
        if controller is None or controller == before:
            return None
        return f"broker {controller} is the controller"


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "ended"
    if code < 0:
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"ended with code {code}"


def explain_end(member: MemberState) -> str:
    """What happened to a process that ended by itself, and what to do."""
    plan = member.plan
    text = f"{plan.name} {ending(member.code)}."
    if plan.broker_id is None:
        text += " The brokers keep serving, but no leader and no controller can be elected."
    text += f" Its log is {shown_path(plan.log_file)}. Start it again in another terminal: {shown_command(plan)}"
    return text


def shown_path(path: Path) -> str:
    """Relative to the working directory, if it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def shown_command(plan: ProcessPlan) -> str:
    """The command that starts the process by hand."""
    return shlex.join(["ottla", *(shown_path(Path(each)) if each.startswith("/") else each for each in plan.arguments)])
