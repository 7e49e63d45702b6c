"""The messages themselves, one module an API; beside them the headers and the schemas of internal topics and blobs."""
