"""What the tools are asked, one after the other, of one broker. Each step stands on those before it."""

from __future__ import annotations

import json

from compat.tools.tool_runs import Step

_KEYED = "--reader-property parse.key=true --reader-property key.separator=:"
_SHOWN = " ".join(f"--formatter-property print.{part}=true" for part in ("partition", "offset", "key", "headers"))
_TOPIC_PLAIN = "--entity-type topics --entity-name plain"
_BROKER_1 = "--entity-type brokers --entity-name 1"
_ALL_BROKERS = "--entity-type brokers --entity-default"

FILES = {
    "delete.json": json.dumps(
        {
            "version": 1,
            "partitions": [
                {"topic": "lines", "partition": 0, "offset": 2},
                {"topic": "codecs", "partition": 0, "offset": -1},
            ],
        }
    ),
    "delete-too-many.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 999}]}
    ),
    "elect.json": json.dumps({"partitions": [{"topic": "plain", "partition": 0}, {"topic": "plain", "partition": 2}]}),
    "elect-nothing.json": json.dumps({"partitions": [{"topic": "nowhere", "partition": 0}]}),
    "topics-to-move.json": json.dumps({"version": 1, "topics": [{"topic": "plain"}]}),
    "reassign.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "plain", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]}
    ),
    "reassign-away.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "plain", "partition": 0, "replicas": [7]}]}
    ),
    "move-directory.json": json.dumps(
        {
            "version": 1,
            "partitions": [{"topic": "lines", "partition": 0, "replicas": [1], "log_dirs": ["PLACE/second"]}],
        }
    ),
    "topic-config.properties": "retention.bytes=123456\nmin.insync.replicas=1\n",
}

TOPICS = (
    Step("create a topic", "kafka-topics --create --topic plain --partitions 3 --replication-factor 1"),
    Step(
        "create a topic with configs",
        "kafka-topics --create --topic configured --partitions 2 --config cleanup.policy=compact"
        " --config segment.bytes=1048576",
    ),
    Step("create a topic of the broker's defaults", "kafka-topics --create --topic defaults"),
    Step("create a topic with replicas of our choice", "kafka-topics --create --topic placed --replica-assignment 1,1"),
    Step("create a topic that is there", "kafka-topics --create --topic plain"),
    Step("create a topic unless it is there", "kafka-topics --create --topic plain --if-not-exists"),
    Step("create a topic with too many replicas", "kafka-topics --create --topic crowded --replication-factor 2"),
    Step("create a topic with a wrong name", "kafka-topics --create --topic wrong/name"),
    Step("create a topic with a name too long", f"kafka-topics --create --topic {'n' * 250}"),
    Step("create a topic with a wrong config", "kafka-topics --create --topic odd --config retention.ms=soon"),
    Step("create a topic with an unknown config", "kafka-topics --create --topic odd --config retention.hours=2"),
    Step("list topics", "kafka-topics --list"),
    Step("list topics by a pattern", "kafka-topics --list --topic 'p.*'"),
    Step("describe a topic", "kafka-topics --describe --topic plain"),
    Step("describe a topic in parts", "kafka-topics --describe --topic many --partition-size-limit-per-response 7"),
    Step("describe a topic with configs", "kafka-topics --describe --topic configured"),
    Step("describe topics that have configs", "kafka-topics --describe --topics-with-overrides"),
    Step("describe topics that lack replicas", "kafka-topics --describe --under-replicated-partitions"),
    Step("describe topics that are not there to use", "kafka-topics --describe --unavailable-partitions"),
    Step(
        "describe topics at the least of their replicas",
        "kafka-topics --describe --at-min-isr-partitions --topic plain",
    ),
    Step("describe a topic that is not there", "kafka-topics --describe --topic nowhere"),
    Step("describe a topic if it is there", "kafka-topics --describe --topic nowhere --if-exists"),
    Step("add partitions", "kafka-topics --alter --topic configured --partitions 5"),
    Step("see partitions added", "kafka-topics --describe --topic configured"),
    Step("take partitions away", "kafka-topics --alter --topic configured --partitions 4"),
    Step("add no partition", "kafka-topics --alter --topic configured --partitions 5"),
    Step("add partitions to no topic", "kafka-topics --alter --topic nowhere --partitions 5"),
    Step(
        "add partitions on a broker that is not there",
        "kafka-topics --alter --topic placed --partitions 3 --replica-assignment 1,1,9",
    ),
    Step(
        "add partitions with replicas of our choice",
        "kafka-topics --alter --topic placed --partitions 3 --replica-assignment 1,1,1",
    ),
)

# Kafka's brokers hear of their configs a little after they were written: other steps come in between.
CONFIGS = (
    Step(
        "set configs of a broker",
        f"kafka-configs --alter {_BROKER_1} --add-config log.cleaner.threads=2,message.max.bytes=2097152",
    ),
    Step(
        "set configs of all brokers",
        f"kafka-configs --alter {_ALL_BROKERS} --add-config message.max.bytes=1500000,log.flush.interval.ms=60000",
    ),
    Step(
        "set topic configs",
        f"kafka-configs --alter {_TOPIC_PLAIN} --add-config retention.ms=3600000,max.message.bytes=2000000",
    ),
    Step(
        "set topic configs from a file",
        "kafka-configs --alter --entity-type topics --entity-name defaults"
        " --add-config-file PLACE/files/topic-config.properties",
    ),
    Step(
        "set a list of a topic", f"kafka-configs --alter {_TOPIC_PLAIN} --add-config 'cleanup.policy=[compact,delete]'"
    ),
    Step("see topic configs", f"kafka-configs --describe {_TOPIC_PLAIN}"),
    Step("see configs of all topics", "kafka-configs --describe --entity-type topics"),
    Step("see all configs of a topic", f"kafka-configs --describe {_TOPIC_PLAIN} --all"),
    Step("drop a topic config", f"kafka-configs --alter {_TOPIC_PLAIN} --delete-config retention.ms,cleanup.policy"),
    Step("see topic configs without it", f"kafka-configs --describe {_TOPIC_PLAIN}"),
    Step("drop a topic config that is not set", f"kafka-configs --alter {_TOPIC_PLAIN} --delete-config flush.ms"),
    Step("set a wrong topic config", f"kafka-configs --alter {_TOPIC_PLAIN} --add-config retention.ms=soon"),
    Step(
        "set a topic config out of its range",
        f"kafka-configs --alter {_TOPIC_PLAIN} --add-config min.cleanable.dirty.ratio=2",
    ),
    Step("set an unknown topic config", f"kafka-configs --alter {_TOPIC_PLAIN} --add-config retention.hours=2"),
    Step(
        "set a config of no topic",
        "kafka-configs --alter --entity-type topics --entity-name nowhere --add-config retention.ms=2000",
    ),
    Step("see configs of no topic", "kafka-configs --describe --entity-type topics --entity-name nowhere"),
    Step("see configs of a broker", f"kafka-configs --describe {_BROKER_1}"),
    Step("see configs of all brokers", f"kafka-configs --describe {_ALL_BROKERS}"),
    Step("see configs of brokers", "kafka-configs --describe --entity-type brokers"),
    Step("see all configs of a broker", f"kafka-configs --describe {_BROKER_1} --all"),
    Step(
        "see what a topic takes from brokers",
        "kafka-configs --describe --entity-type topics --entity-name placed --all",
    ),
    Step(
        "drop configs of a broker",
        f"kafka-configs --alter {_BROKER_1} --delete-config log.cleaner.threads,message.max.bytes",
    ),
    Step(
        "drop configs of all brokers",
        f"kafka-configs --alter {_ALL_BROKERS} --delete-config message.max.bytes,log.flush.interval.ms",
    ),
    Step("set a config that needs a restart", f"kafka-configs --alter {_BROKER_1} --add-config broker.rack=here"),
    Step("set a wrong config of a broker", f"kafka-configs --alter {_BROKER_1} --add-config log.cleaner.threads=few"),
    Step(
        "set a config of one broker for all",
        f"kafka-configs --alter {_ALL_BROKERS} --add-config listeners=PLAINTEXT://:1",
    ),
    Step("see configs of a broker without them", f"kafka-configs --describe {_BROKER_1}"),
    Step(
        "set the level of a logger",
        "kafka-configs --alter --entity-type broker-loggers --entity-name 1 --add-config root=WARN",
    ),
    Step(
        "set a wrong level of a logger",
        "kafka-configs --alter --entity-type broker-loggers --entity-name 1 --add-config root=LOUD",
    ),
    Step("see loggers of a broker", "kafka-configs --describe --entity-type broker-loggers --entity-name 1"),
)

RECORDS = (
    Step("delete a topic", "kafka-topics --delete --topic configured"),
    Step(
        "produce lines",
        "kafka-console-producer --topic lines --sync --command-property acks=all",
        "one\ntwo\n\nthree\n",
    ),
    Step("produce keys", f"kafka-console-producer --topic keyed {_KEYED}", "a:1\nb:2\na:3\nc:4\n"),
    Step(
        "produce headers",
        f"kafka-console-producer --topic headed {_KEYED} --reader-property parse.headers=true"
        " --reader-property null.marker=NULL --request-required-acks 1",
        "trace:7,span:x\ta:1\nNULL\tb:NULL\ntrace:NULL\tNULL:3\n",
    ),
    *(
        Step(
            f"produce by {codec}",
            f"kafka-console-producer --topic codecs --compression-codec {codec}",
            f"{codec} 1\n{codec} 2\n",
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ),
    Step(
        "produce without waiting", "kafka-console-producer --topic careless --request-required-acks 0", "gone\naway\n"
    ),
    Step("produce a line without a key", f"kafka-console-producer --topic keyed {_KEYED}", "no separator\n"),
    Step(
        "produce a line too long",
        "kafka-console-producer --topic lines --sync --max-block-ms 5000 --command-property max.request.size=9000000",
        "x" * 3_000_000 + "\n",
    ),
    Step(
        "consume a partition",
        f"kafka-console-consumer --topic headed --partition 0 --offset earliest --max-messages 3 {_SHOWN}"
        " --formatter-property print.timestamp=true",
    ),
    Step(
        "consume from the beginning",
        "kafka-console-consumer --topic codecs --partition 0 --from-beginning --max-messages 10",
    ),
    Step(
        "consume from an offset",
        f"kafka-console-consumer --topic codecs --partition 0 --offset 7 --max-messages 2 {_SHOWN}",
    ),
    Step(
        "consume what is committed",
        "kafka-console-consumer --topic keyed --partition 0 --offset 0 --max-messages 4 "
        " --isolation-level read_committed --formatter-property print.key=true --formatter-property key.separator='->'",
    ),
    Step(
        "consume until nothing comes",
        "kafka-console-consumer --topic codecs --partition 0 --offset 8 --timeout-ms 1500",
    ),
    Step(
        "consume from beyond the end",
        "kafka-console-consumer --topic codecs --partition 0 --offset 500 --timeout-ms 1500"
        " --command-property auto.offset.reset=earliest",
    ),
    Step(
        "consume no value",
        "kafka-console-consumer --topic headed --partition 0 --offset earliest --max-messages 3"
        " --formatter-property print.key=true --formatter-property print.value=false",
    ),
)

OFFSETS = (
    Step("latest offsets", "kafka-get-offsets --topic codecs --time latest"),
    Step("earliest offsets", "kafka-get-offsets --topic codecs --time earliest"),
    Step("offsets of the latest time", "kafka-get-offsets --topic times --time max-timestamp"),
    Step("offsets by time", "kafka-get-offsets --topic times --time 1600000002000"),
    Step("offsets by a time between", "kafka-get-offsets --topic times --time 1600000002500"),
    Step("offsets by a time to come", "kafka-get-offsets --topic times --time 1900000000000"),
    Step("earliest local offsets", "kafka-get-offsets --topic codecs --time earliest-local"),
    Step("latest tiered offsets", "kafka-get-offsets --topic codecs --time latest-tiered"),
    Step("offsets of some partitions", "kafka-get-offsets --topic-partitions 'plain:0-2,lines:0'"),
    Step("offsets of all topics", "kafka-get-offsets"),
    Step("offsets of no topic", "kafka-get-offsets --topic nowhere"),
    Step("delete records", "kafka-delete-records --offset-json-file PLACE/files/delete.json"),
    Step("see records deleted", "kafka-get-offsets --topic codecs --time earliest"),
    Step(
        "delete more records than there are", "kafka-delete-records --offset-json-file PLACE/files/delete-too-many.json"
    ),
)

CLUSTER = (
    Step("log directories", "kafka-log-dirs --describe"),
    Step("log directories of some topics", "kafka-log-dirs --describe --topic-list lines,codecs --broker-list 1"),
    Step("log directories of a broker that is not there", "kafka-log-dirs --describe --broker-list 9"),
    Step("the cluster's id", "kafka-cluster cluster-id"),
    Step("versions of all APIs", "kafka-broker-api-versions"),
    Step("elect leaders", "kafka-leader-election --election-type preferred --path-to-json-file PLACE/files/elect.json"),
    Step("elect a leader", "kafka-leader-election --election-type unclean --topic plain --partition 1"),
    Step("elect all leaders", "kafka-leader-election --election-type preferred --all-topic-partitions"),
    Step(
        "elect a leader of nothing",
        "kafka-leader-election --election-type preferred --path-to-json-file PLACE/files/elect-nothing.json",
    ),
    Step(
        "move a replica to another directory",
        "kafka-reassign-partitions --execute --reassignment-json-file PLACE/files/move-directory.json",
    ),
    Step(
        "plan where replicas go",
        "kafka-reassign-partitions --generate --topics-to-move-json-file PLACE/files/topics-to-move.json"
        " --broker-list 1",
    ),
    Step("move replicas", "kafka-reassign-partitions --execute --reassignment-json-file PLACE/files/reassign.json"),
    Step("see replicas moved", "kafka-reassign-partitions --verify --reassignment-json-file PLACE/files/reassign.json"),
    Step(
        "see a replica in another directory",
        "kafka-reassign-partitions --verify --reassignment-json-file PLACE/files/move-directory.json",
    ),
    Step("see replicas on the move", "kafka-reassign-partitions --list"),
    Step(
        "stop moving replicas", "kafka-reassign-partitions --cancel --reassignment-json-file PLACE/files/reassign.json"
    ),
    Step(
        "move replicas to a broker that is not there",
        "kafka-reassign-partitions --execute --reassignment-json-file PLACE/files/reassign-away.json",
    ),
    Step("transactions that hang", "kafka-transactions find-hanging --topic lines --partition 0"),
    Step("features", "kafka-features describe"),
    Step("producers of a partition", "kafka-transactions describe-producers --topic lines --partition 0"),
    Step(
        "measure a producer",
        "kafka-producer-perf-test --topic measured --num-records 5000 --record-size 100 --throughput -1"
        " --command-property compression.type=lz4",
    ),
    Step("see how much was produced", "kafka-get-offsets --topic measured"),
    Step("resources for metrics of clients", "kafka-client-metrics --list"),
)

DELETION = (
    Step("create a topic again", "kafka-topics --create --topic configured"),
    Step("delete topics by a pattern", "kafka-topics --delete --topic 'care.*|meas.*'"),
    Step("delete a topic that is not there", "kafka-topics --delete --topic nowhere"),
    Step("delete a topic if it is there", "kafka-topics --delete --topic nowhere --if-exists"),
    Step("see it without its configs", "kafka-topics --describe --topic configured"),
    Step("list what is left", "kafka-topics --list"),
)

SCRIPT = (*TOPICS, *CONFIGS, *RECORDS, *OFFSETS, *CLUSTER, *DELETION)

# Tools that end what they do in hooks of the JVM, and so need one of their own.
ALONE = (Step("produce what can be verified", "kafka-verifiable-producer --topic verified --max-messages 5 --acks -1"),)
