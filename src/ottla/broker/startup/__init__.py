"""What a broker determines before it serves: its data directory, its cluster and its id."""
