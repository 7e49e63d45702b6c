"""Connections of servers and clients: frames in, answers out, in order, within limits that protect a server."""
