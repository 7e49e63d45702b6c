"""What `ottla pipeline new` writes: a pipeline in Python and the same in YAML, with some data to try them."""
