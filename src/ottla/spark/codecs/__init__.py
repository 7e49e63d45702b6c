"""Columns of bytes to columns of something, and back: JSON and Avro.

Decoding never fails a query: what cannot be read goes to a side of its own, as it came, with the reason.
"""
