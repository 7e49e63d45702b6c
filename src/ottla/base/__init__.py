"""Shared by all packages: ids, error codes, configs, clock and disk interfaces. Imports nothing else of Ottla."""
