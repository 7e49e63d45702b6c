"""One broker a run, asked by everything of one version of Kafka: the tools first, then groups of consumers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compat.groups.members import at_work, fill
from compat.groups.programs import run_groups
from compat.groups.script import ANEW, EVERYTHING, FILES, OLDER
from compat.groups.tables import settled
from compat.tools.peers import peer
from compat.tools.tool_runs import Step, run_tools
from compat.tools.transcripts import Said

# Members of the newer protocol hear of changes when they call: soon, here.
_SETTINGS = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "200"}


@dataclass(frozen=True, slots=True)
class Run:
    version: str
    """Of clients and tools."""
    beside: str
    """The version of the Kafka that they are compared beside."""
    protocols: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def anew(self) -> bool:
        return "consumer" in self.protocols


# Kafka with ZooKeeper does not serve the newer protocol, which the clients of its time know already.
RUNS = {
    "groups-3.9.1": Run("3.9.1", "3.9.1", ("range", "cooperative"), OLDER),
    "groups-3.9.1-anew": Run("3.9.1", "4.3.1", ("consumer",), ANEW),
    "groups-4.3.1": Run("4.3.1", "4.3.1", ("range", "cooperative", "consumer"), EVERYTHING),
}


def run(name: str, place: Path) -> dict[str, Said]:
    """What each step printed. Steps of the consumers' program begin with `client: `."""
    chosen = RUNS[name]
    files = place / "files"
    files.mkdir(parents=True)
    for file, text in FILES.items():
        (files / file).write_text(text, encoding="utf-8")
    with peer(chosen.beside, place, _SETTINGS) as broker:
        fill(broker.bootstrap)
        with at_work(broker.bootstrap, anew=chosen.anew):
            printed = run_tools(chosen.version, chosen.steps, broker)
        transcript = {step: settled(said) for step, said in printed.items()}
        return transcript | run_groups(chosen.version, chosen.protocols, broker)
