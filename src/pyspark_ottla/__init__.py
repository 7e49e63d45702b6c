"""Where PySpark finds `format("ottla")` by itself: it looks for packages whose names begin with `pyspark_`."""

from ottla.spark.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
