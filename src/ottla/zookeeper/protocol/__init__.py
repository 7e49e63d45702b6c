"""ZooKeeper's client protocol: serialization and messages, for server and client alike. No I/O."""
