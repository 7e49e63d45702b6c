"""A client of ZooKeeper on asyncio: `Coordination` for a cluster, with Apache ZooKeeper or the embedded server."""
