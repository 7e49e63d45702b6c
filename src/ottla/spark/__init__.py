"""Pipelines on Spark: topics as DataFrames, by `format("ottla")`.

Imports the client and PySpark, never a broker: it works against any Kafka cluster.
"""
