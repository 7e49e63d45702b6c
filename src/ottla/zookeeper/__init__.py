"""What a cluster keeps in ZooKeeper: the nodes, what they hold, and where they are kept."""
