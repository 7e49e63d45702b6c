"""What tests of the log share: batches to append, and a checker that believes nothing a log says of itself."""
