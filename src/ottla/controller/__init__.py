"""Who leads what: topics, their partitions and replicas, made, changed and deleted."""
