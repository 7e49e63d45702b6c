"""A client for a broker that has just started."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.kafka_process import Broker

PATIENCE_S = 90.0


def admin_of(broker: Broker) -> AdminClient:
    """One that knows the controller. A broker listens before it knows its controller, and a client that asked too early
    does not ask again before its operation times out."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        # While nothing listens yet, it must not wait longer and longer between attempts.
        admin = AdminClient({"bootstrap.servers": broker.address, "reconnect.backoff.max.ms": 200})
        try:
            if admin.list_topics(timeout=10).controller_id >= 0:
                return admin
        except KafkaException:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the broker at {broker.address} knew no controller within {PATIENCE_S:.0f} s:\n{broker.output}")
