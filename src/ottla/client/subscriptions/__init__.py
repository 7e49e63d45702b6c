"""What a consumer is subscribed to, its positions, and its rebalance listeners."""
