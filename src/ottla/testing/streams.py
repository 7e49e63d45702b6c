"""A test driver for streaming queries: feed topics, run to the end, read topics.

with StreamsDriver(spark, broker.bootstrap) as driver:
    orders, totals = driver.topic("orders"), driver.topic("totals")
    driver.send(orders, ("alice", "3", 0.0), ("alice", "4", 60.0))
    driver.run(lambda: total_by_customer(driver.stream(orders)), totals)
    assert driver.table(totals) == {"alice": "7"}

Each `run` of the same query goes on where the last one ended, as after a restart. Event time is the timestamp of the
records, in seconds after `START`, so that a test decides when windows close and watermarks move: no clock is involved.

Share the session and the broker between tests, as `ottla_broker` of the pytest plugin does. Not thread-safe.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ottla.client.administer import Admin, NewTopic
from ottla.client.consume import Consumer
from ottla.client.produce import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Second 0 of the tests' event time."""

_START_MS: Final = int(START.timestamp() * 1000)
_TIMEOUT_S: Final = 120
_PROCESSING_TIME: Final = re.compile(r"\bTransformWithState.*\bProcessingTime\b")
"""An operator in a plan that wants another micro-batch after each one."""
_NO_DATA: Final = "spark.sql.streaming.noDataMicroBatches.enabled"


class Sent(NamedTuple):
    """A record to send: texts or bytes, and seconds after `START`. A tombstone has no value."""

    key: str | bytes | None
    value: str | bytes | None
    at_s: float = 0.0


class Received(NamedTuple):
    """A record that was read."""

    key: str | None
    value: str | None
    at_s: float
    headers: Mapping[str, str]


class StreamsDriver:
    """See the module docstring."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._place = Path(tempfile.mkdtemp(prefix="ottla-streams-"))
        self._admin = Admin(bootstrap_servers=bootstrap)
        self._producer = Producer(bootstrap_servers=bootstrap)
        self._topics: list[str] = []
        self._queries: dict[Callable[[], DataFrame], Path] = {}
        """The checkpoint of each query."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deletes the topics and checkpoints."""
        try:
            self._producer.close()
            if self._topics:
                self._admin.delete_topics(self._topics)
        finally:
            self._admin.close()
            shutil.rmtree(self._place, ignore_errors=True)

    def topic(self, name: str, *, partitions: int = 1, compacted: bool = False) -> str:
        """Creates a topic, and returns its name, which begins with the given one and which nobody else uses."""
        unique = f"{name}-{uuid.uuid4().hex[:12]}"
        # The times of records are in the past: a retention time would delete them at the broker's next check.
        configs = {"cleanup.policy": "compact" if compacted else "delete", "retention.ms": "-1"}
        self._admin.create_topics([NewTopic(unique, partitions, configs=configs)])
        self._topics.append(unique)
        return unique

    def send(
        self, topic: str, *records: Sent | tuple[str | bytes | None, str | bytes | None, float], partition: int = 0
    ) -> None:
        """Sends records in this order, and waits for them."""
        for key, value, at_s in (Sent(*record) for record in records):
            at_ms = _START_MS + round(at_s * 1000)
            self._producer.send(topic, _bytes(value), key=_bytes(key), partition=partition, timestamp=at_ms)
        self._producer.flush()

    def stream(self, topic: str, **options: str) -> DataFrame:
        """The topic as a stream from its beginning, with key and value as text."""
        from ottla.spark.streams import stream

        given = {"kafka.bootstrap.servers": self.bootstrap, "commitOffsets": "false", **options}
        return stream(self.spark, topic, given, key="CAST(key AS STRING)", value="CAST(value AS STRING)")

    def run(self, query: Callable[[], DataFrame], to: str | None = None, **options: str) -> None:
        """Runs the query until it has processed everything that its topics have. `to` is the topic of its results; None
        if the rows name one. Raises what the query raised. A query is known by its function: calling `run` again with
        the same one continues from its checkpoint.

        If state or timers follow the processing time (`process(…, time="processing")`), there are no micro-batches
        without data, because Spark would never stop running these: timers fire in the next run that has data."""
        checkpoint = self._queries.setdefault(query, self._place / f"query-{len(self._queries)}")
        frame = query()
        writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", self.bootstrap)
        if to is not None:
            writer = writer.option("topic", to)
        writer = writer.options(**options).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        with self._finite(frame):
            running = writer.start()
        try:
            if not running.awaitTermination(_TIMEOUT_S):
                raise TimeoutError(f"the query did not end within {_TIMEOUT_S:g} s: {running.status}")
        finally:
            running.stop()

    @contextmanager
    def _finite(self, frame: DataFrame) -> Iterator[None]:
        """A query takes the settings of its session when it starts."""
        internal: Any = frame
        if not _PROCESSING_TIME.search(internal._jdf.queryExecution().analyzed().toString()):
            yield
            return
        before = self.spark.conf.get(_NO_DATA)
        self.spark.conf.set(_NO_DATA, "false")
        try:
            yield
        finally:
            self.spark.conf.set(_NO_DATA, before or "true")

    def read(self, topic: str) -> list[Received]:
        """All committed records of the topic, partition by partition."""
        found: list[Received] = []
        with Consumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed") as consumer:
            partitions = [(topic, one.index) for one in consumer.partitions_for(topic).partitions]
            consumer.assign(partitions)
            ends = consumer.end_offsets(consumer.assignment())
            begins = consumer.beginning_offsets(consumer.assignment())
            for partition, end in ends.items():
                consumer.seek(partition, begins[partition], until=end)
            records: list[Any] = []
            while not consumer.is_done:
                records += consumer.poll(_TIMEOUT_S)
        for record in sorted(records, key=lambda one: (one.partition, one.offset)):
            headers = {name: value.decode() for name, value in record.headers if value is not None}
            at_s = (record.timestamp - _START_MS) / 1000
            found.append(Received(_text(record.key), _text(record.value), at_s, headers))
        return found

    def table(self, topic: str) -> dict[str | None, str]:
        """The topic as a table: the last value of each key; records without a value delete their key."""
        table: dict[str | None, str] = {}
        for key, value, _, _ in self.read(topic):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return table


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
