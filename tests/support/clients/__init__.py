"""Kafka clients of four libraries behind one interface, and the brokers that they are tested against."""
