"""Connections to other brokers: from followers to leaders, from leaders to the controller, from it to all brokers."""
