"""What tests of a broker's parts share."""
