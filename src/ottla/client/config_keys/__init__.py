"""The keys of clients by Kafka's names: every one that a client of Kafka 4.3 has, and a few of our own."""
