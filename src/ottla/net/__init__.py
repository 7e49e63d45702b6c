"""Connections: the only sockets. Frames in, answers out, in order; limits that protect a server."""
