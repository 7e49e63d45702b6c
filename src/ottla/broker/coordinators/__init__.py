"""What all coordinators need from a broker: the log of their internal topic, and to move with its partitions."""
