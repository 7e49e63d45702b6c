"""The Kafka protocol: declarations of its messages, and what turns them into bytes and back. No I/O."""
