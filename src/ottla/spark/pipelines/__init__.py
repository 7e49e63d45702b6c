"""Pipelines that are run from a file: a Python file with PySpark, or YAML for the plain cases.

`python_files` and `yaml_spec` read them, `yaml_build` makes queries of the latter, `running` starts, watches and stops
queries, `progress` tells how they fare, `causes` why one failed. `ottla pipeline` shows all that to people.
"""
