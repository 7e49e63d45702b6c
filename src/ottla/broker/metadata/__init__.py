"""The cluster's topics and brokers, as clients see them."""
