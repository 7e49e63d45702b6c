"""Transactions of ours beside those of Apache Kafka: how many a second, how late readers see them, what they cost."""
