"""What handlers share: what they are given and may raise, and how they find what a request names."""
