"""Kafka's tool for configs, asked about groups: what only 4.x has."""

from __future__ import annotations

from pathlib import Path

from compat.tools.peers import peer
from compat.tools.tool_runs import Step, run_tools
from compat.tools.transcripts import Said

VERSION = "4.3.1"
_GROUP = "--entity-type groups --entity-name g"
_SETTINGS = {"group.consumer.session.timeout.ms": "50000", "group.consumer.max.session.timeout.ms": "70000"}

EVERYTHING = "see all configs of a group"
STEPS = (
    Step("see configs of no group", f"kafka-configs --describe {_GROUP}"),
    Step(
        "set configs of a group",
        f"kafka-configs --alter {_GROUP}"
        " --add-config consumer.session.timeout.ms=65000,consumer.heartbeat.interval.ms=6000",
    ),
    Step("see configs of a group", f"kafka-configs --describe {_GROUP}"),
    Step(EVERYTHING, f"kafka-configs --describe {_GROUP} --all"),
    Step("drop a config of a group", f"kafka-configs --alter {_GROUP} --delete-config consumer.session.timeout.ms"),
    Step("drop it again", f"kafka-configs --alter {_GROUP} --delete-config consumer.session.timeout.ms"),
    Step("set too short a timeout", f"kafka-configs --alter {_GROUP} --add-config consumer.session.timeout.ms=44999"),
    Step("set too long a timeout", f"kafka-configs --alter {_GROUP} --add-config consumer.session.timeout.ms=70001"),
    Step("set a wrong interval", f"kafka-configs --alter {_GROUP} --add-config consumer.heartbeat.interval.ms=often"),
    Step("set an unknown config", f"kafka-configs --alter {_GROUP} --add-config consumer.session.timeout=50000"),
    Step("set by another name", "kafka-configs --alter --group g --add-config consumer.heartbeat.interval.ms=7000"),
    Step("see by another name", "kafka-configs --describe --group g"),
    Step("see configs of all groups", "kafka-configs --describe --entity-type groups"),
    Step("drop the last config", f"kafka-configs --alter {_GROUP} --delete-config consumer.heartbeat.interval.ms"),
    Step("see that nothing is left", f"kafka-configs --describe {_GROUP}"),
    Step("see that no group is left", "kafka-configs --describe --entity-type groups"),
)


def run_group_configs(place: Path) -> dict[str, Said]:
    with peer(VERSION, place, _SETTINGS) as broker:
        return run_tools(VERSION, STEPS, broker)
