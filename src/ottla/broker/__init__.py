"""The broker: request handlers, metadata, configs, background work, and the composition root."""
