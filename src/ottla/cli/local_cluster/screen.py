"""How a local cluster is shown: a table that changes on a terminal, with messages above it; lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from ottla.cli.local_cluster.state import ClusterState, MemberState, Phase, shown_path

if TYPE_CHECKING:
    from rich.console import RenderableType

PURPOSE: Final = (
    "A cluster for development on one machine. In production, run brokers on several machines, with an ensemble of "
    "Apache ZooKeeper."
)
READY: Final = "Ottla is ready at"
"""The line with all addresses starts with it, for programs."""

_COLOURS: Final = {
    Phase.WAITING: "dim",
    Phase.STARTING: "yellow",
    Phase.RUNNING: "green",
    Phase.STOPPING: "yellow",
    Phase.STOPPED: "dim",
    Phase.ENDED: "bold red",
}


class Display(Protocol):
    """What the launcher reports to. Used as a context manager."""

    def __enter__(self) -> Display: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def step(self, text: str) -> None:
        """Expected progress, which a table shows anyway."""

    def tell(self, text: str) -> None:
        """Something that people should know."""

    def warn(self, name: str, text: str, *, is_error: bool) -> None:
        """A warning or an error of a process."""

    def refresh(self, state: ClusterState) -> None:
        """Called several times a second."""


class Lines:
    """One line per message, on standard output."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def __enter__(self) -> Lines:
        self.tell(PURPOSE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def step(self, text: str) -> None:
        self.tell(text)

    def tell(self, text: str) -> None:
        typer.echo(text)
        sys.stdout.flush()

    def warn(self, name: str, text: str, *, is_error: bool) -> None:
        self.tell(f"{name}: {'error' if is_error else 'warning'}: {text}")

    def refresh(self, state: ClusterState) -> None:
        pass


class Screen:
    """A table of the processes that changes, below the messages."""

    def __init__(self, state: ClusterState, directory: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._directory = directory
        self._console = Console(highlight=False)
        self._live = Live(render(state, directory), console=self._console, auto_refresh=False)
        self._drawn: Any = None

    def __enter__(self) -> Screen:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def step(self, text: str) -> None:
        pass

    def tell(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))

    def warn(self, name: str, text: str, *, is_error: bool) -> None:
        from rich.text import Text

        mark = ("error: ", "bold red") if is_error else ("warning: ", "yellow")
        self._console.print(Text.assemble((f"{name}: ", "bold"), mark, text))

    def refresh(self, state: ClusterState) -> None:
        drawn = [(member.shown, member.address, member.is_controller) for member in state.members], self._console.size
        if drawn != self._drawn:
            self._drawn = drawn
            self._live.update(render(state, self._directory), refresh=True)


def render(state: ClusterState, directory: str) -> RenderableType:
    """The table, and what to do with the cluster."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)  # fits into 80 columns
    for heading in ("process", "address", "state", "log"):
        table.add_column(heading, overflow="fold")
    for member in state.members:
        log = Text(shown_path(member.plan.log_file), "dim")
        table.add_row(Text(member.plan.name), Text(member.address), _state(member), log)
    lines = [Text(PURPOSE, "dim"), Text(f"Data in {directory}.", "dim")]
    if state.is_settled:
        lines += [Text(""), *map(Text, _suggestions(state))]
    if hint := _ending_hint(state):
        lines += [Text(""), Text(hint)]
    return Group(Text(""), table, *lines)


def _state(member: MemberState) -> Any:
    from rich.text import Text

    is_well = member.shown == member.phase.value
    shown = Text(member.shown, _COLOURS[member.phase] if is_well or member.phase is Phase.ENDED else "yellow")
    if member.is_controller:
        shown.append(", controller", "bold cyan")
    return shown


def _suggestions(state: ClusterState) -> list[str]:
    first = next(broker.address for broker in state.brokers if broker.phase is Phase.RUNNING)
    server = "" if first in ("127.0.0.1:9092", "localhost:9092") else f" -b {first}"
    return [
        "Try in another terminal:",
        f"  ottla topics create orders --partitions 3{server}",
        f"  ottla cluster{server}",
        f"  ottla topics describe orders{server}",
    ]


def _ending_hint(state: ClusterState) -> str:
    phases = {member.phase for member in state.members}
    if phases <= {Phase.STOPPED, Phase.ENDED}:
        return ""
    if phases & {Phase.STOPPING, Phase.STOPPED}:
        return "Ctrl-C again kills the processes."
    return "Ctrl-C stops the cluster."
