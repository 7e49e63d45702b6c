"""What a broker establishes before it serves: its data directory, its cluster and its id."""
