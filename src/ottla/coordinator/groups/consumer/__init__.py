"""The consumer group protocol (KIP-848): the coordinator assigns partitions, members follow with heartbeats."""
