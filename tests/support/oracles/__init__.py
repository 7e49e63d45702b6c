"""Independent implementations that the tests compare Ottla with."""
