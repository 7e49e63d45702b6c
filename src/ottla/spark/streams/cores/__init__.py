"""The operators on streams and tables, without Spark: rows of a key in, results and new state out.

Everything here is plain Python without I/O, clocks or random numbers, so that a micro-batch that is computed again
gives the same results. Keys and values are bytes that nothing here looks into.
"""
