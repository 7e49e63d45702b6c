"""One partition's records on one machine, in Kafka's own files. No network and no asyncio."""
