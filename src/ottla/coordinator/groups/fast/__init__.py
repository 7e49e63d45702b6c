"""Fast paths for the usual OffsetCommit and OffsetFetch requests. General code must not import from here."""
