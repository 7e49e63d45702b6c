"""Groups of Java consumers: `java/Groups*.java`, compiled with the clients of a version."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat.tools.peers import Peer
from compat.tools.tool_runs import run_java
from compat.tools.transcripts import Said, normalised
from kafka_artifacts import classpath

SOURCES = Path(__file__).parents[1] / "java"
NEWER = "GroupsNewer"
COMPILE_TIMEOUT_S = 120


def run_groups(version: str, protocols: Sequence[str], peer: Peer) -> dict[str, Said]:
    """What each step of the program printed."""
    classes = _compiled(version, peer.place / "classes")
    main = "Groups" if version == "3.9.1" else NEWER
    text = run_java(version, [main, peer.bootstrap, *protocols], "", peer.place, classes)
    transcript = {}
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, _, printed = section.partition("\n")
        transcript[f"client: {name}"] = Said(f"{main}.java", normalised(printed, peer), 0)
    return transcript


def _compiled(version: str, into: Path) -> Path:
    sources = [str(source) for source in sorted(SOURCES.glob("Groups*.java"))]
    if version == "3.9.1":
        sources = [source for source in sources if Path(source).stem != NEWER]
    command = ["javac", "-nowarn", "-proc:none", "-Xlint:none", "-cp", classpath(version), "-d", str(into), *sources]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S)
    if result.returncode != 0:
        raise RuntimeError(f"javac with Kafka {version} failed:\n{result.stderr}")
    return into
