"""Ottla: event streaming that speaks Kafka's protocol, written in Python, with pipelines on Spark."""
