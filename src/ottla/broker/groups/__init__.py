"""What the group coordinator needs from a broker: the cluster's topics, and settings."""
