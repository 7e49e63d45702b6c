"""`ottla reassign`: plan, run, list and cancel partition reassignments."""
