"""An exactly-once sink without Spark: tasks that prepare transactions, and what readers see of them."""

from __future__ import annotations

import uuid

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic, TransactionState
from ottla.client.transactions import PreparedTransaction
from ottla.spark.exactly_once.decisions import TaskReport
from ottla.spark.exactly_once.driver import SinkDriver
from ottla.spark.exactly_once.identifiers import Identifiers, Owner, run_token, sink_of_query
from ottla.spark.options import WriteOptions

PREFIX = "driver-test"


class Sink:
    """One sink of one query, and its tasks."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.topic, self.bootstrap = topic, bootstrap
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "exactlyOnce": "true"}
        parsed = WriteOptions.parse({**given, "transactionalIdPrefix": PREFIX, **options})
        assert parsed.exactly_once is not None
        self.options = parsed.exactly_once
        self.sink = sink_of_query(uuid.uuid4().hex, None)
        self.tasks = 0

    def driver(self) -> SinkDriver:
        return SinkDriver(self.options, self.sink)

    def prepared(self, run: str, first: int, batch: int, value: str) -> PreparedTransaction:
        self.tasks += 1
        name = Identifiers(PREFIX, self.sink).of_task(Owner(first, run_token(run)), "m-0", self.tasks, batch)
        with Producer(bootstrap_servers=self.bootstrap, transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(self.topic, value.encode(), partition=0)
            return producer.prepare_transaction()

    def report(self, run: str, first: int | None, batch: int, value: str | None, began_s: float = 2e9) -> TaskReport:
        transaction = None if value is None else self.prepared(run, first or 0, batch, value)
        return TaskReport(
            sink=self.sink, run=run, batch=batch, first=first, transaction=transaction, rows=1, began_s=began_s
        )

    def visible(self) -> list[str]:
        partition = TopicPartition(self.topic, 0)
        with Consumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed") as consumer:
            end = consumer.end_offsets([partition])[partition]
            consumer.assign([partition])
            consumer.seek(partition, 0, until=end)
            return [(record.value or b"").decode() for record in consumer]

    def all_open(self) -> list[str]:
        """The ids of all open transactions of the cluster."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return [one.transactional_id for one in admin.list_transactions(states=[TransactionState.ONGOING])]

    def open(self) -> list[str]:
        return [one for one in self.all_open() if self.sink in one]

    def end_open(self) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.fence_producers(self.open())

    def time_out(self, *reports: TaskReport) -> None:
        """Does what the coordinator does then."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.fence_producers(one.transaction.transactional_id for one in reports if one.transaction is not None)


def new_sink(bootstrap: str, topic: str, **options: str) -> Sink:
    """With a topic that is new."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    return Sink(bootstrap, topic, **options)
