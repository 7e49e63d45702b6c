"""A member of a group of Kafka 0.8's consumers, which agree through ZooKeeper, without a coordinator."""
