"""`ottla pipeline`: runs pipelines on Spark and shows their progress."""
