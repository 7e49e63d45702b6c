"""The follower side of replication: fetches from leaders, truncates what they do not have, appends what they have."""
