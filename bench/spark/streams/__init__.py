"""Stream processing beside Kafka Streams 3.9.1: the same topics in, the same results out, on one broker of ours.

Begin at `lines`. `inputs` fills the topics and reads results, `operators` is our side, which runs in a Spark of the
session, and `kafka_streams` the other one: `KafkaStreamsWork.java`, in a Java that stays up as long as the Spark does.
"""
