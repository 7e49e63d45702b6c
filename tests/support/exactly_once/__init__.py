"""A streaming query in a process of its own, and what kills it: `job` is the query, `fire` the killing."""
