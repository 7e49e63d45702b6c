"""What handlers share: their context, their errors, deferred responses, and the lookup of partitions."""
