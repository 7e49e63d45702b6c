"""The controller of a cluster without I/O: what it knows, and how events change that. See `effects` for the form."""
