"""What a consumer is subscribed to, how far it is, and who is told of changes."""
