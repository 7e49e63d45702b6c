"""Code that tests of more than one folder share."""
