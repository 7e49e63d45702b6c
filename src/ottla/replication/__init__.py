"""A partition's role on this broker: leader or follower, high watermark, in-sync replicas, delayed operations."""
