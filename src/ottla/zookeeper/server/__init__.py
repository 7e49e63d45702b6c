"""The embedded ZooKeeper: one server that speaks the protocol of Apache ZooKeeper and keeps its tree in SQLite."""
