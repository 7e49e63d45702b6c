"""Where PySpark finds `format("ottla")` by itself: it looks for packages whose names begin with `pyspark_`."""

from ottla.spark.python_workers import quieten_planner
from ottla.spark.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]

quieten_planner()  # PySpark has a process that only looks for sources: it loads this package and calls nothing
