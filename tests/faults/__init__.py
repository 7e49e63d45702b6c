"""Brokers under bad input and bad luck: real processes, real sockets, real clients beside them."""
