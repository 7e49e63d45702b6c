"""`ottla streams`: administers queries of `ottla.spark.streams`."""
