"""What `ottla pipeline new` writes: a pipeline in Python and the same in YAML, with a little data to try them on."""
