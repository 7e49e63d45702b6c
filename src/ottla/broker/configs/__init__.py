"""Configs of the broker, its topics and its groups: keys, sources, changes at run time, descriptions."""
