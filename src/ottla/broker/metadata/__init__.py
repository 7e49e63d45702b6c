"""What this broker knows of the cluster's topics and brokers, as clients see it."""
