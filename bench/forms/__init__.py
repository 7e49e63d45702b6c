"""The forms of work that users do and `bench.broker` leaves out, on a broker of ours beside Apache Kafka, in turns.

Begin at `__main__`. `lines` says what is measured and against which target. The loads run in processes of their own, by
`driver`: `records` produces and fetches with frames that were made before, `admin` creates, changes and deletes topics,
`joining` lets groups form; librdkafka's load is that of `bench.broker`.
"""
