"""Benchmarks of a cluster of three brokers beside three brokers of Apache Kafka 3.9.1."""

import bench.broker  # noqa: F401  # lets `kafka_artifacts` be imported
