"""The controller: creates, changes and deletes topics, and elects the leaders of their partitions."""
