"""What every room shares: ids, error codes. Imports nothing of Ottla."""
