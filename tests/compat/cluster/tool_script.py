"""What Kafka's tools are asked of a cluster of three brokers, one after the other; each step builds on those before it.

Replicas are placed by hand wherever that shows in what a tool prints, because a controller starts anywhere otherwise.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from compat.tools.tool_runs import Step, ToolSession
from compat.tools.transcripts import Said
from ottla import Admin
from ottla.testing.broker import Setting
from support.cluster.kafka_members import MixedCluster
from support.kafka_process import java_command
from support.waiting import wait_until

VERSION: Final = "3.9.1"
SETTINGS: Final[dict[str, Setting]] = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": 1,
    "replica.lag.time.max.ms": 5000,
}
_PATIENCE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.3
_LINES: Final = 300
_KEYED: Final = "--property parse.key=true --property key.separator=:"
_TOPIC: Final = "--entity-type topics --entity-name placed"
_ALL_BROKERS: Final = "--entity-type brokers --entity-default"
_NOTHING_MOVES: Final = "No partition reassignments found"


def _assignment(partitions: dict[tuple[str, int], Sequence[int]]) -> str:
    rows = [{"topic": name, "partition": index, "replicas": list(to)} for (name, index), to in partitions.items()]
    return json.dumps({"version": 1, "partitions": rows})


def _partitions(*names: tuple[str, int]) -> str:
    return json.dumps({"partitions": [{"topic": name, "partition": index} for name, index in names]})


FILES: Final = {
    "move.json": _assignment({("placed", 0): [2, 3], ("placed", 1): [1, 3, 2]}),
    "move-slowly.json": _assignment({("heavy", 0): [1, 3]}),
    "move-to-2.json": _assignment({("placed", 3): [1, 2]}),
    "move-to-9.json": _assignment({("placed", 0): [1, 9]}),
    "move-nothing.json": _assignment({("nowhere", 0): [1, 2]}),
    "topics.json": json.dumps({"version": 1, "topics": [{"topic": "placed"}]}),
    "elect.json": _partitions(("placed", 0), ("placed", 1), ("placed", 2)),
    "elect-nothing.json": _partitions(("nowhere", 0)),
}


class Script:
    """Keeps what each step printed, by name."""

    def __init__(self, cluster: MixedCluster, tools: ToolSession) -> None:
        self.cluster = cluster
        self.tools = tools
        self.transcript: dict[str, Said] = {}

    def run(
        self, name: str, command: str, given: str = "", *, until: str = "", keep: str = "", seconds: int = 60
    ) -> Said:
        """With `until`, again until that pattern is found in what it prints: what was done reaches all brokers a
        little later. After some patience, the last answer stands. With `keep`, only lines with it are kept."""
        if name in self.transcript:
            raise ValueError(f"there are two steps named {name!r}")
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            said = self.tools.run(Step(name, command, given, seconds))
            if re.search(until, said.text) or time.monotonic() > deadline_s:
                break
            time.sleep(_LOOK_AGAIN_S)
        if keep:
            said = replace(said, text="".join(line for line in said.text.splitlines(True) if keep in line))
        self.transcript[name] = said
        return said


def play(cluster: MixedCluster, tools: ToolSession) -> dict[str, Said]:
    files = cluster.directory / "files"
    files.mkdir()
    for name, text in FILES.items():
        (files / name).write_text(text, encoding="utf-8")
    script = Script(cluster, tools)
    for part in (_topics, _records, _groups, _configs, _moves, _slow_moves, _elections, _broker_gone, _unclean, _nodes):
        part(script)
    _leader_dies(script)
    _end(script)
    return script.transcript


def _topics(script: Script) -> None:
    run = script.run
    run("create a topic", "kafka-topics --create --topic placed --replica-assignment 1:2:3,2:3:1,3:1:2")
    run("see it", "kafka-topics --describe --topic placed", until=r"(Isr: \d,\d,\d[^$]*){3}")
    run("create a topic anywhere", "kafka-topics --create --topic spread --partitions 6 --replication-factor 3")
    run("see it anywhere", "kafka-topics --describe --topic spread", until=r"(Isr: \d,\d,\d[^$]*){6}")
    run("create a topic by defaults", "kafka-topics --create --topic defaults")
    run("create a topic with one replica", "kafka-topics --create --topic alone --replica-assignment 1,2,3")
    run("too many replicas", "kafka-topics --create --topic wrong --partitions 1 --replication-factor 4")
    run("an unknown broker", "kafka-topics --create --topic wrong --replica-assignment 1:9")
    run("forget it", "kafka-topics --delete --topic wrong --if-exists")
    run("a broker twice", "kafka-topics --create --topic wrong --replica-assignment 1:1")
    run("uneven replicas", "kafka-topics --create --topic wrong --replica-assignment 1:2,3")
    run("add no partition", "kafka-topics --alter --topic placed --partitions 3")
    run("remove partitions", "kafka-topics --alter --topic placed --partitions 1")
    run(
        "add a partition with fewer replicas",
        "kafka-topics --alter --topic placed --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,3:2",
    )
    run(
        "add a partition on an unknown broker",
        "kafka-topics --alter --topic placed --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,3:2:9",
    )
    run(
        "add a partition",
        "kafka-topics --alter --topic placed --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,3:2:1",
    )
    run("see the new partition", "kafka-topics --describe --topic placed", until=r"(Isr: \d,\d,\d[^$]*){4}")
    run("see what is under-replicated", "kafka-topics --describe --under-replicated-partitions")
    run("see what is under the least ISR", "kafka-topics --describe --under-min-isr-partitions")
    run("see what is unavailable", "kafka-topics --describe --unavailable-partitions")
    run("list topics", "kafka-topics --list --exclude-internal")


def _records(script: Script) -> None:
    lines = "".join(f"{key}:{number}\n" for number, key in enumerate("abcdefghijkl"))
    script.run("produce", f"kafka-console-producer --topic placed --command-property acks=all {_KEYED}", lines)
    script.run("offsets", "kafka-get-offsets --topic placed")
    script.run("earliest offsets", "kafka-get-offsets --topic placed --time earliest")
    script.run(
        "consume a partition",
        "kafka-console-consumer --topic placed --partition 0 --offset earliest --max-messages 2"
        " --property print.key=true",
    )
    script.run("log directories", "kafka-log-dirs --describe --topic-list placed,alone")
    script.run("log directories of a broker", "kafka-log-dirs --describe --topic-list placed --broker-list 3")


def _groups(script: Script) -> None:
    run = script.run
    group = "--group readers"
    run("create a topic of one partition", "kafka-topics --create --topic single --replica-assignment 3:1:2")
    run(
        "produce lines",
        "kafka-console-producer --topic single --command-property acks=all",
        "".join(f"{number}\n" for number in range(10)),
    )
    run(
        "consume as a group",
        f"kafka-console-consumer --topic single {group} --from-beginning --max-messages 6",
    )
    run("list groups", "kafka-consumer-groups --list")
    run("describe a group", f"kafka-consumer-groups --describe {group}")
    run("describe the state of a group", f"kafka-consumer-groups --describe --state {group}")
    run(
        "plan to reset offsets", f"kafka-consumer-groups --reset-offsets {group} --topic single --to-earliest --dry-run"
    )
    run("reset offsets", f"kafka-consumer-groups --reset-offsets {group} --topic single:0 --to-offset 2 --execute")
    run("shift offsets", f"kafka-consumer-groups --reset-offsets {group} --topic single --shift-by 3 --execute")
    run("describe what was reset", f"kafka-consumer-groups --describe {group}")
    run("consume from there", f"kafka-console-consumer --topic single {group} --max-messages 5")


def _configs(script: Script) -> None:
    run = script.run
    run("set topic configs", f"kafka-configs --alter {_TOPIC} --add-config retention.ms=3600000,segment.bytes=1048576")
    run("see topic configs", f"kafka-configs --describe {_TOPIC}", until="retention.ms=3600000")
    run("set configs of all brokers", f"kafka-configs --alter {_ALL_BROKERS} --add-config message.max.bytes=1500000")
    run("set configs of a broker", "kafka-configs --alter --broker 2 --add-config num.replica.fetchers=2")
    run("see configs of all brokers", f"kafka-configs --describe {_ALL_BROKERS}", until="message.max.bytes")
    run("see configs of a broker", "kafka-configs --describe --broker 2", until="num.replica.fetchers")
    for broker in (1, 2, 3):
        command = f"kafka-configs --describe --all --broker {broker}"
        run(f"see what broker {broker} uses", command, until="message.max.bytes=1500000", keep="message.max.bytes")
    run("see what a topic takes from brokers", "kafka-configs --describe --topic alone --all", keep="message.bytes")
    zookeeper = "--zookeeper ZOOKEEPER"
    run("see configs of a broker in ZooKeeper", f"kafka-configs {zookeeper} --describe --broker 2")
    run(
        "set configs of a live broker in ZooKeeper",
        f"kafka-configs {zookeeper} --alter --broker 2 --add-config num.replica.fetchers=3",
    )
    run("drop configs of a broker", "kafka-configs --alter --broker 2 --delete-config num.replica.fetchers")
    run("drop configs of all brokers", f"kafka-configs --alter {_ALL_BROKERS} --delete-config message.max.bytes")
    run("see that they are gone", "kafka-configs --describe --broker 2", until=r"\A[^=]*\Z")
    run("drop topic configs", f"kafka-configs --alter {_TOPIC} --delete-config retention.ms")


def _moves(script: Script) -> None:
    run = script.run
    reassign = "kafka-reassign-partitions --reassignment-json-file PLACE/files"
    run(
        "plan a move",
        "kafka-reassign-partitions --generate --topics-to-move-json-file PLACE/files/topics.json --broker-list 1,2,3",
    )
    run("move to an unknown broker", f"{reassign}/move-to-9.json --execute")
    run("move nothing", f"{reassign}/move-nothing.json --execute")
    run("move", f"{reassign}/move.json --execute --throttle 10000000")
    run("see nothing move any more", "kafka-reassign-partitions --list", until=_NOTHING_MOVES)
    run("see throttles of the topic", f"kafka-configs --describe {_TOPIC}")
    run("see throttles of a broker", "kafka-configs --describe --broker 3")
    run("verify", f"{reassign}/move.json --verify", until="Clearing topic")
    run("see no throttles of the topic", f"kafka-configs --describe {_TOPIC}", until=r"\A(?![^$]*throttled)")
    run("see no throttles of a broker", "kafka-configs --describe --broker 3", until=r"\A[^=]*\Z")
    run("see it moved", "kafka-topics --describe --topic placed", until="Replicas: 2,3\tIsr: 2,3|Isr: 3,2")


def _slow_moves(script: Script) -> None:
    run = script.run
    reassign = "kafka-reassign-partitions --reassignment-json-file PLACE/files/move-slowly.json"
    run("create a topic to fill", "kafka-topics --create --topic heavy --replica-assignment 1:2")
    # A throttle reaches brokers a little after a move has begun: there must be enough left by then.
    for part in range(1, 5):
        run(
            f"fill it, part {part}",
            "kafka-producer-perf-test --topic heavy --num-records 8000 --record-size 1000 --throughput -1"
            " --command-property acks=all",
        )
    run("move slowly", f"{reassign} --execute --throttle 1000")
    run("list moves", "kafka-reassign-partitions --list", until="heavy")
    run("see it move", "kafka-topics --describe --topic heavy", until="Adding")
    run("verify that it moves", f"{reassign} --verify")
    run("move again", f"{reassign} --execute --throttle 1000")
    run("cancel", f"{reassign} --cancel")
    run("cancel again", f"{reassign} --cancel")
    run("list no moves", "kafka-reassign-partitions --list", until=_NOTHING_MOVES)
    run("see it where it was", "kafka-topics --describe --topic heavy", until="Isr: 1,2")
    run("see no throttles of what was cancelled", "kafka-configs --describe --entity-type topics --entity-name heavy")
    run("move slowly once more", f"{reassign} --execute --throttle 1000")
    run("see it move once more", "kafka-topics --describe --topic heavy", until="Adding")
    wait_until(lambda: _is_known(script.cluster, "heavy", (1, 3, 2)), "all brokers to know the move")
    run("hurry", f"{reassign} --execute --additional --throttle 100000000")
    run("list no moves at last", "kafka-reassign-partitions --list", until=_NOTHING_MOVES)
    run("verify the hurry", f"{reassign} --verify")
    run("see it there", "kafka-topics --describe --topic heavy", until="Isr: 1,3")


def _is_known(cluster: MixedCluster, topic: str, replicas: Sequence[int]) -> bool:
    """Whether every broker tells clients these replicas of the first partition."""
    for broker in cluster.brokers.values():
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            if tuple(admin.describe_topics([topic])[topic].partitions[0].replicas) != tuple(replicas):
                return False
    return True


def _elections(script: Script) -> None:
    run = script.run
    elect = "kafka-leader-election --election-type preferred"
    run("elect the preferred leader", f"{elect} --topic placed --partition 1")
    run("elect it again", f"{elect} --topic placed --partition 1")
    run("elect by a file", f"{elect} --path-to-json-file PLACE/files/elect.json")
    run("elect for nothing", f"{elect} --path-to-json-file PLACE/files/elect-nothing.json")
    run("see the leaders", "kafka-topics --describe --topic placed", until=r"Partition: 1\tLeader: 1")


def _broker_gone(script: Script) -> None:
    run = script.run
    run("create a topic to delete", "kafka-topics --create --topic doomed --replica-assignment 1:2:3")
    script.cluster.brokers[2].stop()
    run(
        "see it without a broker",
        "kafka-topics --describe --topic placed",
        until=r"\A(?![^$]*Isr: [13,]*2)",
    )
    run("under-replicated", "kafka-topics --describe --under-replicated-partitions --topic placed")
    run("at the least ISR", "kafka-topics --describe --at-min-isr-partitions --topic placed")
    run("under the least ISR", "kafka-topics --describe --under-min-isr-partitions --topic placed")
    run("unavailable", "kafka-topics --describe --unavailable-partitions", until="none")
    run("create a topic for all brokers", "kafka-topics --create --topic wrong --partitions 1 --replication-factor 3")
    run("create a topic on a broker that is gone", "kafka-topics --create --topic partly --replica-assignment 1:2:3")
    run("forget that too", "kafka-topics --delete --topic partly --if-exists")
    run(
        "move to a broker that is gone",
        "kafka-reassign-partitions --execute --reassignment-json-file PLACE/files/move-to-2.json",
    )
    run("elect a leader that is gone", "kafka-leader-election --election-type preferred --topic placed --partition 0")
    run("offsets without a broker", "kafka-get-offsets --topic placed")
    run(
        "set configs of a broker that is gone",
        "kafka-configs --zookeeper ZOOKEEPER --alter --broker 2 --add-config log.cleaner.threads=2",
    )
    run("delete a topic of a broker that is gone", "kafka-topics --delete --topic doomed")
    script.cluster.brokers[2].start()
    run("see it with all brokers", "kafka-topics --describe --topic placed", until=r"(Isr: [13,]*2[13,]*\s[^$]*){4}")
    run("see what was set meanwhile", "kafka-configs --describe --broker 2")
    run("see it deleted", "kafka-topics --list --exclude-internal", until=r"\A(?![^$]*(partly|doomed))")


def _unclean(script: Script) -> None:
    run, brokers = script.run, script.cluster.brokers
    run("create a topic with two replicas", "kafka-topics --create --topic risky --replica-assignment 1:2")
    run("see two in sync", "kafka-topics --describe --topic risky", until="Isr: 1,2")
    brokers[2].stop()
    run("see one in sync", "kafka-topics --describe --topic risky", until=r"Isr: 1\s")
    brokers[1].stop()
    run("see none that leads", "kafka-topics --describe --topic risky", until="none")
    brokers[2].start()
    run("elect in vain", "kafka-leader-election --election-type preferred --topic risky --partition 0")
    run("elect an unclean leader", "kafka-leader-election --election-type unclean --topic risky --partition 0")
    run("see it lead", "kafka-topics --describe --topic risky", until="Leader: 2")
    run("elect an unclean leader again", "kafka-leader-election --election-type unclean --topic risky --partition 0")
    brokers[1].start()
    run("see it follow", "kafka-topics --describe --topic risky", until="Isr: 2,1")


def _nodes(script: Script) -> None:
    shell = "zookeeper-shell -server ZOOKEEPER"
    for command in (
        "ls /",
        "ls /brokers",
        "ls /brokers/ids",
        "ls /brokers/topics",
        "ls /admin",
        "ls -R /config",
        "ls -R /brokers/topics/placed",
        "get /brokers/ids/1",
        "get /brokers/topics/placed",
        "get /brokers/topics/placed/partitions/0/state",
        "get /controller",
        "get /config/topics/placed",
        "get /config/brokers/2",
        "get /feature",
        "get /cluster/id",
    ):
        script.run(f"shell: {command}", f"{shell} {command}")


def _leader_dies(script: Script) -> None:
    """A console producer and a console consumer go on when the leader is killed: nothing is lost, doubled or moved."""
    run, cluster = script.run, script.cluster
    run("create a topic whose leader dies", "kafka-topics --create --topic killed --replica-assignment 3:1:2")
    cluster.wait_for_isr("killed", 0, {1, 2, 3})
    reading = threading.Thread(
        target=run,
        args=(
            "consume while the leader dies",
            f"kafka-console-consumer --topic killed --from-beginning --max-messages {_LINES} --timeout-ms 60000",
        ),
        kwargs={"seconds": 100},
    )
    command = java_command(VERSION, "kafka.tools.ConsoleProducer", "--topic", "killed", "--bootstrap-server")
    command += [cluster.bootstrap, "--producer-property", "acks=all"]
    writer = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    try:
        reading.start()
        for number in range(_LINES):
            writer.stdin.write(f"{number}\n")  # type: ignore[union-attr]
            if number == _LINES // 3:
                _wait_for_bytes(cluster.brokers[3].directory / "data" / "logs" / "killed-0")
                cluster.brokers[3].kill()
        said, _ = writer.communicate(timeout=90)
    finally:
        writer.kill()
        writer.wait()
    reading.join()
    script.transcript["produce while the leader dies"] = Said("kafka-console-producer", said.replace(">", ""), 0)
    cluster.brokers[3].start()


def _wait_for_bytes(folder: Path) -> None:
    """Until something was produced."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not any(segment.stat().st_size for segment in folder.glob("*.log")):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"nothing was written to {folder}")
        time.sleep(0.05)


def _end(script: Script) -> None:
    run = script.run
    script.cluster.wait_for_isr("placed", 3, {1, 2, 3})
    run("delete topics", "kafka-topics --delete --topic 'heavy|risky|alone|killed'")
    run("list what is left", "kafka-topics --list --exclude-internal", until=r"\A(?![^$]*(heavy|risky|alone|killed))")
    run("delete a group", "kafka-consumer-groups --delete --group readers")
    run(
        "verify replicas",
        "kafka-replica-verification --topics-include placed --report-interval-ms 500",
        seconds=3,
    )
