"""`ottla demo`: the traffic of a shop, a Spark pipeline, and a live screen."""
