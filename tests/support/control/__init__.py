"""Brokers as the controller sees them, without sockets."""
