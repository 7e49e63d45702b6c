"""What the controller tells this broker: which replicas to lead, follow and stop, and who is in the cluster."""
