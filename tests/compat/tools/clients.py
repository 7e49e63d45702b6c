"""The Java clients, used by `java/Clients.java`."""

from __future__ import annotations

import re
from pathlib import Path

from compat.tools.peers import DIRECTORIES, Peer, is_kafka
from compat.tools.tool_runs import run_java
from compat.tools.transcripts import Said, normalised

PROGRAM = Path(__file__).parents[1] / "java" / "Clients.java"


def run_clients(version: str, peer: Peer) -> dict[str, Said]:
    directories = [str(peer.place / name) for name in DIRECTORIES]
    acts_at_once = str(not is_kafka()).lower()
    text = run_java(version, [str(PROGRAM), peer.bootstrap, *directories, acts_at_once], "", peer.place)
    transcript = {}
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, _, printed = section.partition("\n")
        transcript[f"client: {name}"] = Said("Clients.java", normalised(printed, peer), 0)
    return transcript
