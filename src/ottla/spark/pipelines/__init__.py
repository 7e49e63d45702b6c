"""Pipelines that are run from a file: a Python file with PySpark, or YAML for simple cases.

`python_files` and `yaml_spec` read them, `yaml_build` creates queries from YAML, `running` starts, monitors and stops
queries, `progress` collects their progress, `causes` explains failures. `ottla pipeline` is the user interface.
"""
