"""Record batches: layout, building, reading, columns, compression, control records."""
