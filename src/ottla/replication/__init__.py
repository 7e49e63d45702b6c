"""A partition's roles on this broker: leader or follower, high watermark, in-sync replicas, and what waits for them."""
