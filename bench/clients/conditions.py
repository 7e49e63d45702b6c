"""What is the same for every client, in each client's own words."""

from __future__ import annotations

from typing import Any, Final

KIB: Final = 1024
LINGER_MS: Final = 5
BATCH_BYTES: Final = 256 * KIB
BUFFER_BYTES: Final = 64 * KIB * KIB
IN_FLIGHT: Final = 5
FETCH_BYTES: Final = KIB * KIB
"""Of a partition."""
POLL_RECORDS: Final = 10_000
"""That a consumer hands out at most at once."""
WAIT_S: Final = 60.0

IN_WORDS: Final = (
    f"acks=all, idempotence, linger {LINGER_MS} ms, batches of {BATCH_BYTES // KIB} KiB, no compression, at most "
    f"{IN_FLIGHT} requests in flight, {BUFFER_BYTES // KIB // KIB} MiB of buffer; fetches of {FETCH_BYTES // KIB} KiB "
    f"of a partition, checksums verified, up to {POLL_RECORDS:,} records at once"
)


def ottla_producer(address: str, linger_ms: int = LINGER_MS) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": linger_ms,
        "batch.size": BATCH_BYTES,
        "buffer.memory": BUFFER_BYTES,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
    }


def ottla_consumer(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "max.partition.fetch.bytes": FETCH_BYTES,
        "check.crcs": True,
        "max.poll.records": POLL_RECORDS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def confluent_producer(address: str, linger_ms: int = LINGER_MS) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": linger_ms,
        "batch.size": BATCH_BYTES,
        # It counts records as well as bytes, and would end a batch, or be full, far below the bytes.
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": BUFFER_BYTES // KIB,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
    }


def confluent_consumer(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "group.id": "unused",
        "max.partition.fetch.bytes": FETCH_BYTES,
        # By default it stops fetching for a second when it has enough.
        "fetch.queue.backoff.ms": 1,
        "check.crcs": True,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def aiokafka_producer(address: str, linger_ms: int = LINGER_MS) -> dict[str, Any]:
    """It has no bound of its own for its buffer, and one request a partition in flight."""
    return {
        "bootstrap_servers": address,
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": linger_ms,
        "max_batch_size": BATCH_BYTES,
    }


def aiokafka_consumer(address: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "max_partition_fetch_bytes": FETCH_BYTES,
        "check_crcs": True,
        "max_poll_records": POLL_RECORDS,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "group_id": None,
    }


def kafka_python_producer(address: str, linger_ms: int = LINGER_MS) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": linger_ms,
        "batch_size": BATCH_BYTES,
        "max_in_flight_requests_per_connection": IN_FLIGHT,
    }


def kafka_python_consumer(address: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "max_partition_fetch_bytes": FETCH_BYTES,
        "check_crcs": True,
        "max_poll_records": POLL_RECORDS,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
