"""Runs the core of the controller: the event queue, the tree, and one channel per broker."""
