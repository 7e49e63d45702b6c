"""What the group coordinator needs from a broker: its log, the cluster's topics, and settings."""
