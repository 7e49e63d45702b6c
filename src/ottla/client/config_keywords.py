"""The keyword arguments of clients, for type checkers: every config key by its Python name.

Generated from the tables in `config_keys` by tools/client_keywords.py; change those and run it. Values may also be
texts, as in a properties file; None leaves a key at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypedDict

from ottla.net.client_connection import Address

Text: TypeAlias = str | None
Number: TypeAlias = int | str | None
Flag: TypeAlias = bool | str | None
Servers: TypeAlias = str | Address | Iterable[str | Address] | None
Objects: TypeAlias = str | Iterable[Any] | None
Partitioner: TypeAlias = str | Callable[[str, bytes | None, bytes | None, int], int] | None


class CommonKeywords(TypedDict, total=False):
    """What every client has."""

    bootstrap_servers: Servers
    client_dns_lookup: object
    client_id: Text
    connections_max_idle_ms: Number
    enable_metrics_push: object
    metadata_max_age_ms: Number
    metadata_recovery_rebootstrap_trigger_ms: object
    metadata_recovery_strategy: Text
    metric_reporters: object
    metrics_num_samples: object
    metrics_recording_level: object
    metrics_sample_window_ms: object
    receive_buffer_bytes: Number
    reconnect_backoff_max_ms: Number
    reconnect_backoff_ms: Number
    request_timeout_ms: Number
    retry_backoff_max_ms: Number
    retry_backoff_ms: Number
    security_protocol: object
    send_buffer_bytes: Number
    socket_connection_setup_timeout_max_ms: Number
    socket_connection_setup_timeout_ms: Number


class ProducerKeywords(CommonKeywords, total=False):
    """Those that only the producer has."""

    acks: Number
    batch_size: Number
    buffer_memory: Number
    compression_gzip_level: Number
    compression_lz4_level: Number
    compression_type: Text
    compression_zstd_level: Number
    delivery_timeout_ms: Number
    enable_idempotence: Flag
    interceptor_classes: Objects
    interceptors: Objects
    linger_ms: Number
    max_block_ms: Number
    max_in_flight_requests_per_connection: Number
    max_request_size: Number
    metadata_max_idle_ms: Number
    partitioner: Partitioner
    partitioner_adaptive_partitioning_enable: Flag
    partitioner_availability_timeout_ms: object
    partitioner_class: Partitioner
    partitioner_ignore_keys: Flag
    retries: Number
    transaction_timeout_ms: Number
    transaction_two_phase_commit_enable: Flag
    transactional_id: Text


class ConsumerKeywords(CommonKeywords, total=False):
    """Those that only the consumer has."""

    allow_auto_create_topics: Flag
    auto_commit_interval_ms: Number
    auto_offset_reset: Text
    check_crcs: Flag
    client_rack: Text
    default_api_timeout_ms: Number
    dual_commit_enabled: Flag
    enable_auto_commit: Flag
    exclude_internal_topics: Flag
    fetch_max_bytes: Number
    fetch_max_wait_ms: Number
    fetch_min_bytes: Number
    group_id: Text
    group_instance_id: Text
    group_protocol: Text
    group_remote_assignor: Text
    heartbeat_interval_ms: Number
    interceptor_classes: Objects
    interceptors: Objects
    internal_throw_on_fetch_stable_offset_unsupported: object
    isolation_level: Text
    max_decompressed_batch_bytes: Number
    max_partition_fetch_bytes: Number
    max_poll_interval_ms: Number
    max_poll_records: Number
    offsets_storage: Text
    partition_assignment_strategy: Objects
    queued_max_bytes: Number
    rebalance_backoff_ms: Number
    rebalance_max_retries: Number
    session_timeout_ms: Number
    zookeeper_connect: Text
    zookeeper_connection_timeout_ms: Number
    zookeeper_session_timeout_ms: Number


class AdminKeywords(CommonKeywords, total=False):
    """Those that only the admin has."""

    default_api_timeout_ms: Number
    retries: Number
