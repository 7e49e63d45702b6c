"""One broker, asked by everything of one version of Kafka: the program of clients first, then the tools."""

from __future__ import annotations

from pathlib import Path

from compat.tools.clients import run_clients
from compat.tools.peers import peer
from compat.tools.script import ALONE, FILES, SCRIPT
from compat.tools.tool_runs import run_tool_alone, run_tools
from compat.tools.transcripts import Said

VERSIONS = ("3.9.1", "4.3.1")


def run(version: str, place: Path) -> dict[str, Said]:
    """What each step printed. Steps of the clients' program begin with `client: `."""
    files = place / "files"
    files.mkdir(parents=True)
    for name, text in FILES.items():
        (files / name).write_text(text.replace("PLACE", str(place)), encoding="utf-8")
    with peer(version, place) as broker:
        transcript = run_clients(version, broker)
        transcript |= run_tools(version, SCRIPT, broker)
        transcript |= {step.name: run_tool_alone(version, step, broker) for step in ALONE}
    return transcript
