"""Decodes columns of bytes, and encodes them: JSON and Avro.

Decoding never fails a query: rows that cannot be read are returned separately, unchanged, with the reason.
"""
