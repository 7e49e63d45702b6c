"""What the group coordinator needs of a broker: its log, its topics and its settings."""
