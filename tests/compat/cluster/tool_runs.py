"""One run of `tool_script` on three brokers: ours, or with OTTLA_TEST_PEER=kafka those of Apache Kafka 3.9.1."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from compat.cluster.tool_script import SETTINGS, VERSION, play
from compat.tools.peers import Peer, is_kafka
from compat.tools.tool_runs import ToolSession
from compat.tools.transcripts import Said
from support.cluster.kafka_members import KAFKA, OTTLA, MixedCluster

NAME: Final = "cluster-3.9.1"

_LINES = re.MULTILINE
# What differs from run to run, and is nobody's promise.
_ACCIDENTAL: Final = (
    (re.compile(r"^\s*\n|^WATCHER::\n|^WatchedEvent state:.*\n|^Connecting to .*\n", _LINES), ""),
    (re.compile(r'("(?:leader|controller)_epoch":)\d+'), r"\1NUMBER"),
    (re.compile(r'("topic_id":"|"id":")[\w-]{22}"'), r'\1ID"'),
    (re.compile(r'"(?:port|timestamp|brokerid)":"?\d+"?'), "NUMBER"),
    (re.compile(r"\b(BROKER)\s+\(\d\)\s+"), r"\1 (ID) "),
    # Kafka created it on a broker that is not there, and never gets to the end of deleting it.
    (re.compile(r", wrong\b|^/config/topics/wrong\n", _LINES), ""),
    # Which of them, how often and in which order.
    (re.compile(r"^\d{4}-\d\d-\d\d .*?: (verification process|max lag is \d+)", _LINES), r"TIME \1"),
    (re.compile(r"(^TIME (max lag is \d+) for .* at offset \d+( among \d+ partitions)\n)+", _LINES), r"\2\3\n"),
    (re.compile(r"(/config/changes/config_change_\d+\n)+"), "/config/changes/...\n"),
    (re.compile(r"(?<=for partitions )[\w-]+(, [\w-]+)+"), lambda found: ", ".join(sorted(found[0].split(", ")))),
    (re.compile(r"(?<=^Proposed partition reassignment configuration\n).*", _LINES), "PROPOSED"),
)


def run(place: Path) -> dict[str, Said]:
    kind = KAFKA if is_kafka() else OTTLA
    with MixedCluster((kind,) * 3, zookeeper="apache", settings=SETTINGS, directory=place) as cluster:
        peer = Peer(cluster.bootstrap, place, cluster.zookeeper_connect)
        with ToolSession(VERSION, peer) as tools:
            transcript = play(cluster, tools)
    return {name: replace(said, text=_comparable(said.text)) for name, said in transcript.items()}


def _comparable(text: str) -> str:
    for pattern, word in _ACCIDENTAL:
        text = pattern.sub(word, text)
    return text
