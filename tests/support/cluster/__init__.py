"""Clusters under load and faults: members of either make, load, checker, audit of the tree, scenarios."""
