"""What every tree promises, whoever keeps it."""
