"""`ottla start --brokers N`: a cluster of broker processes and a ZooKeeper process on this machine, for development."""
