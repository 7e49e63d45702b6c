"""One of the two brokers in a dialogue: sends it the steps, and turns its answers into trees.

Kafka tells its brokers of new topics after it has answered. So after a step that makes or deletes some, it is asked
until the change can be seen; those questions are no part of the dialogue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from differential.answers import tree_of
from differential.connection import PATIENCE_S, Connection, NoAnswerError
from differential.dialogue import Step
from differential.requests import api_named, request_of
from differential.symbols import Symbols
from ottla.base.error_codes import ErrorCode
from ottla.wire.registry import Api
from ottla.wire.schema import Response

SETTLE_S: Final = 10.0
_LATER_S: Final = 0.08
"""Until a request that is not waited for has surely been handled."""
_DYNAMIC_TOPIC_CONFIG: Final = 1
_WAIT_WORTH_MS: Final = 300
"""A fetch that may wait as long is compared by whether it did."""


class SettleError(Exception):
    """A broker did not get to where it said it was."""


def has_waited(request: dict[str, Any], tree: dict[str, Any], took_ms: float, *, is_kafka: bool) -> bool:
    """Whether a fetch took as long as it may wait for records. Kafka with enough of them does not wait: it was only
    slow, as in its first seconds on a busy machine. Of ours, that would be a fault."""
    if took_ms <= request["max_wait_ms"] * 0.85:
        return False
    partitions = (each for topic in tree["responses"] for each in topic["partitions"])
    size = sum(records["bytes"] for each in partitions if isinstance(records := each.get("records"), dict))
    return not is_kafka or size < max(request.get("min_bytes", 0), 1)


@dataclass
class _Pending:
    api: Api
    version: int
    correlation_id: int
    step: Step


class Side:
    """One broker in one dialogue."""

    def __init__(self, port: int, symbols: Symbols, *, is_kafka: bool) -> None:
        self._port = port
        self.symbols = symbols
        self.is_kafka = is_kafka
        self._connections: dict[int, Connection] = {}
        self._pending: dict[int, list[_Pending]] = {}
        self._sent_s = 0.0
        self._sent: _Pending | NoAnswerError | None = None

    # --- steps --------------------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        api, version, number = api_named(step["api"]), step["version"], step.get("connection", 0)
        request = request_of(api, self.symbols.resolve(step["request"]))
        self._sent_s = time.monotonic()
        try:
            connection = self._connection(number)
            sent = _Pending(api, version, connection.send(request, version), step)
        except NoAnswerError as error:
            self._drop(number)
            self._sent = error
            return
        if step.get("later"):
            self._pending.setdefault(number, []).append(sent)
            self._sent = None
        else:
            self._sent = sent

    def receive(self, step: Step, patience_s: float = PATIENCE_S) -> Any:
        """A tree, for the step that was sent last or for a `receive`."""
        if step.get("later"):
            time.sleep(_LATER_S)
            return "sent"
        if "receive" in step:
            number = step["receive"]
            waiting = self._pending.get(number)
            if not waiting:
                return "nothing to receive"
            sent = waiting.pop(0)
        else:
            number = step.get("connection", 0)
            if isinstance(self._sent, NoAnswerError):
                return str(self._sent)
            if self._sent is None:
                raise RuntimeError("nothing was sent")
            sent = self._sent
            if self._is_unanswered(sent):
                return {"connection": self._barrier(number), "log_ends": self.log_ends(step)}
        return self._answer(number, sent, patience_s)

    @staticmethod
    def _is_unanswered(sent: _Pending) -> bool:
        return sent.api.name == "Produce" and sent.step["request"].get("acks") == 0

    def _barrier(self, number: int) -> str:
        """Whether the connection still stands after a request that is not answered."""
        api = api_named("ApiVersions")
        try:
            connection = self._connection(number)
            connection.receive(api, 0, connection.send(api.request(), 0))
        except NoAnswerError as error:
            self._drop(number)
            return str(error)
        return "open"

    def log_ends(self, step: Step) -> list[dict[str, Any]]:
        """Of the partitions that a request which is not answered writes to: whether it was taken shows there."""
        asked = [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": each["index"], "timestamp": -1} for each in topic["partition_data"]],
            }
            for topic in self.symbols.resolve(step["request"]["topic_data"])
        ]
        answer = self.ask("ListOffsets", 5, {"replica_id": -1, "topics": asked})
        return sorted(
            (
                {"topic": self.symbols.name_text(topic.name), "partition": each.partition_index, "end": each.offset}
                for topic in answer.topics
                for each in topic.partitions
            ),
            key=lambda end: (end["topic"], end["partition"]),
        )

    def _answer(self, number: int, sent: _Pending, patience_s: float) -> Any:
        try:
            answer = self._connection(number).receive(sent.api, sent.version, sent.correlation_id, patience_s)
        except NoAnswerError as error:
            self._drop(number)
            return str(error)
        took_ms = (time.monotonic() - self._sent_s) * 1000
        self.symbols.learn(sent.step, answer)
        self._settle(sent, answer)
        tree = tree_of(sent.api.name, sent.version, answer, self.symbols)
        if sent.api.name == "Fetch" and sent.step["request"].get("max_wait_ms", 0) >= _WAIT_WORTH_MS:
            tree["waited"] = has_waited(sent.step["request"], tree, took_ms, is_kafka=self.is_kafka)
        return tree

    def _connection(self, number: int) -> Connection:
        connection = self._connections.get(number)
        if connection is None:
            connection = self._connections[number] = Connection(self._port)
        return connection

    def _drop(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.close()
        self._pending.pop(number, None)

    def disconnect(self) -> None:
        for number in list(self._connections):
            self._drop(number)

    # --- beside the dialogue ------------------------------------------------------------------------------------------

    def ask(self, name: str, version: int, fields: dict[str, Any]) -> Any:
        """On a connection of its own."""
        api = api_named(name)
        connection = self._connection(-1)
        return connection.receive(api, version, connection.send(request_of(api, fields), version))

    def _settle(self, sent: _Pending, answer: Response) -> None:
        name = sent.api.name
        if sent.step["request"].get("validate_only"):
            return
        results: Any = answer
        if name == "CreateTopics":
            self.await_topics([each.name for each in results.topics if each.error_code == 0])
        elif name == "CreatePartitions":
            wanted = {each["name"]: each["count"] for each in self.symbols.resolve(sent.step["request"]["topics"])}
            done = [each.name for each in results.results if each.error_code == 0]
            self.await_topics(done, {topic: wanted[topic] for topic in done})
        elif name == "DeleteTopics":
            self._await_deleted([each.name for each in results.responses if each.error_code == 0 and each.name])

    def await_topics(self, names: list[str], counts: dict[str, int] | None = None) -> None:
        """Until all partitions are led and served."""
        if not names:
            return
        counts = counts or {}

        def is_there() -> bool:
            found = self.ask("Metadata", 12, {"topics": [{"name": name} for name in names]}).topics
            for topic in found:
                led = [each for each in topic.partitions if each.leader_id >= 0 and each.error_code == 0]
                if topic.error_code or not led or len(led) < max(counts.get(topic.name, 1), len(topic.partitions)):
                    return False
            asked = [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, "timestamp": -1} for each in topic.partitions
                    ],
                }
                for topic in found
            ]
            ends = self.ask("ListOffsets", 5, {"replica_id": -1, "topics": asked}).topics
            if any(each.error_code for topic in ends for each in topic.partitions):
                return False
            for topic in found:
                self.symbols.learn_topic(topic.name, topic.topic_id, [each.leader_epoch for each in topic.partitions])
            return True

        self._await(is_there, f"topics {names} are not served")

    def set_configs(self, names: list[str]) -> dict[str, dict[str, str | None]]:
        """What is set for these topics alone, by names that do not tell whose they are."""
        resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
        answer = self.ask("DescribeConfigs", 2, {"resources": self.symbols.resolve(resources)})
        return {
            self.symbols.name_text(each.resource_name): {
                config.name: config.value for config in each.configs if config.config_source == _DYNAMIC_TOPIC_CONFIG
            }
            for each in answer.results
        }

    def committed(self, group: str) -> list[tuple[str, int]]:
        """The partitions for which the group has offsets."""
        answer = self.ask("OffsetFetch", 5, {"group_id": self.symbols.resolve(group), "topics": None})
        return sorted(
            (self.symbols.name_text(topic.name), each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
        )

    def _await_deleted(self, names: list[str]) -> None:
        def is_gone() -> bool:
            found = self.ask("Metadata", 12, {"topics": [{"name": name} for name in names]}).topics
            if not all(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in found):
                return False
            # Kafka 3.9.1 still deletes then: whether it is done shows when the topic could be made again.
            topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
            again = self.ask("CreateTopics", 4, {"topics": topics, "timeout_ms": 1000, "validate_only": True}).topics
            return all(each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS for each in again)

        if names:
            self._await(is_gone, f"topics {names} are still there")

    def await_all(self) -> None:
        """After a restart: every topic of the dialogue that is there is served."""
        found = self.ask(
            "Metadata", 12, {"topics": [{"name": f"{self.symbols.prefix}-t{key}"} for key in self.symbols.topic_ids]}
        )
        self.await_topics(
            [each.name for each in found.topics if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        )

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + SETTLE_S
        pause_s = 0.001
        while not condition():
            if time.monotonic() > deadline_s:
                raise SettleError(f"{complaint} after {SETTLE_S:.0f} s ({'Kafka' if self.is_kafka else 'Ottla'})")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)

    def clean(self) -> None:
        """Removes what the dialogue made, and does not wait for it."""
        try:
            names = [f"{self.symbols.prefix}-t{key}" for key in self.symbols.topic_ids]
            if names:
                self.ask("DeleteTopics", 6, {"topics": [{"name": name} for name in names], "timeout_ms": 1000})
        except (NoAnswerError, OSError):
            pass
        self.disconnect()
