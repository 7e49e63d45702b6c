"""A broker: handlers of requests, metadata, config, and the place where all rooms are put together."""
