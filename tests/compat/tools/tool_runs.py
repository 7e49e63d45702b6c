"""Kafka's command-line tools, unmodified, run by `java/RunTools.java` in one JVM: one for each takes long to start."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.tools.peers import Peer
from compat.tools.transcripts import Said, normalised
from support.kafka_process import java_command

RUNNER = Path(__file__).parents[1] / "java" / "RunTools.java"
STEP_TIMEOUT_S = 30
RUN_TIMEOUT_S = 240

_TOOLS = "org.apache.kafka.tools"
_MAINS = {
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": f"{_TOOLS}.DumpLogSegments",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-groups": f"{_TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
    "transactional-message-copier": f"{_TOOLS}.TransactionalMessageCopier",
}
_MAINS_39 = _MAINS | {
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-replica-verification": f"{_TOOLS}.ReplicaVerificationTool",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
# What is said in other words to the older tools.
_OPTIONS_39 = {
    "kafka-console-consumer": {"--formatter-property": "--property", "--command-property": "--consumer-property"},
    "kafka-console-producer": {"--reader-property": "--property", "--command-property": "--producer-property"},
    "kafka-consumer-perf-test": {"--num-records": "--messages"},
    "kafka-producer-perf-test": {"--command-property": "--producer-props"},
}


@dataclass(frozen=True, slots=True)
class Step:
    """A tool, called as in a shell, without the option that names the broker. PLACE and ZOOKEEPER are the peer's."""

    name: str
    command: str
    given: str = ""
    """Standard input."""
    seconds: int = STEP_TIMEOUT_S
    """A tool that runs longer is left alone, and has the exit code -1."""


class ToolSession:
    """One JVM that runs tools one after the other until it is closed. One thread at a time may use it."""

    def __init__(self, version: str, peer: Peer) -> None:
        self._version = version
        self._peer = peer
        self._errors = (peer.place / "java.err").open("w+")
        self._process = subprocess.Popen(
            java_command(version, str(RUNNER), logging=_silence(peer.place)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> ToolSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, step: Step) -> Said:
        main, arguments = _call(self._version, step, self._peer)
        call = {
            "main": main,
            "arguments": arguments,
            "stdin": step.given,
            "seconds": step.seconds,
            "stays": main == _MAINS_39["kafka-replica-verification"],
        }
        answer = json.loads(self._answer(json.dumps(call)))
        return Said(step.command, normalised(answer["text"], self._peer), answer["exit"])

    def _answer(self, call: str) -> str:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process of the tools was started without pipes")
        watchdog = threading.Timer(RUN_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(f"{call}\n")
            answer = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not answer:
            self._errors.seek(0)
            raise RuntimeError(f"the JVM of the tools of Kafka {self._version} ended in {call}:\n{self._errors.read()}")
        return answer


def run_tools(version: str, steps: Sequence[Step], peer: Peer) -> dict[str, Said]:
    """All in one JVM."""
    with ToolSession(version, peer) as tools:
        return {step.name: tools.run(step) for step in steps}


def run_tool_alone(version: str, step: Step, peer: Peer) -> Said:
    """As in a shell."""
    main, arguments = _call(version, step, peer)
    text = run_java(version, [main, *arguments], step.given, peer.place)
    return Said(step.command, normalised(text, peer), 0)


def _call(version: str, step: Step, peer: Peer) -> tuple[str, list[str]]:
    """The class that is the tool, and its arguments."""
    command = step.command.replace("PLACE", str(peer.place)).replace("ZOOKEEPER", peer.zookeeper)
    tool, *arguments = shlex.split(command)
    if version == "3.9.1":
        options = _OPTIONS_39.get(tool, {})
        return _MAINS_39[tool], _with_broker(tool, [options.get(word, word) for word in arguments], peer.bootstrap)
    return _MAINS[tool], _with_broker(tool, arguments, peer.bootstrap)


def run_java(version: str, arguments: Sequence[str], given: str, place: Path, classes: Path | None = None) -> str:
    """Runs a class of Kafka's jars or of `classes`, or a program of a single file; text in, text out."""
    command = java_command(version, *arguments, logging=_silence(place), classes=classes)
    with (place / "java.out").open("w+") as out, (place / "java.err").open("w+") as err:
        try:
            code = subprocess.run(
                command, input=given, stdout=out, stderr=err, text=True, check=False, timeout=RUN_TIMEOUT_S
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        out.seek(0)
        err.seek(0)
        text = out.read()
        if code != 0:
            failure = f"did not end in {RUN_TIMEOUT_S} s" if code is None else f"failed with code {code}"
            raise RuntimeError(f"{arguments[0]} with Kafka {version} {failure}:\n{text}\n{err.read()}")
    return text


def _silence(place: Path) -> Path:
    """A configuration of log4j."""
    file = place / "log4j.properties"
    file.write_text("log4j.rootLogger=OFF\n", encoding="utf-8")
    return file


def _with_broker(tool: str, arguments: list[str], bootstrap: str) -> list[str]:
    if tool == "kafka-producer-perf-test":
        return [*arguments, f"bootstrap.servers={bootstrap}"]
    if tool in ("zookeeper-shell", "kafka-dump-log") or "--zookeeper" in arguments:
        return arguments
    if tool in ("kafka-replica-verification", "transactional-message-copier"):
        return ["--broker-list", bootstrap, *arguments]
    option = ["--bootstrap-server", bootstrap]
    return [*arguments, *option] if tool == "kafka-cluster" else [*option, *arguments]
