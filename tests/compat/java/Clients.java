import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Uses a broker with the real producer, consumer and admin client, and prints what they answer: `== name` before each
 * step. Arguments: the broker's address, its two log directories, and whether it acts on configs at once. Nothing is
 * printed that differs from run to run.
 */
public class Clients {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final long START_MS = 1_600_000_000_000L;
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private static String bootstrap;
    private static String[] directories;
    private static boolean hearsAtOnce;
    private static Admin admin;

    private interface Step {
        void run() throws Exception;
    }

    private interface Ask {
        KafkaFuture<?> get() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        directories = Arrays.copyOfRange(arguments, 1, 3);
        hearsAtOnce = Boolean.parseBoolean(arguments[3]);
        try (Admin client = Admin.create(settings(Map.of()))) {
            admin = client;
            step("topics are created", Clients::createTopics);
            step("topics are refused", Clients::refuseTopics);
            step("topics are described", Clients::describeTopics);
            for (String codec : CODECS) {
                step("records by " + codec, () -> produceAndConsume(codec));
            }
            step("acknowledgements", Clients::acknowledge);
            step("large records", Clients::largeRecords);
            step("records are refused", Clients::refuseRecords);
            step("records are packed anew", Clients::packAnew);
            step("a topic is made anew", Clients::makeAnew);
            step("times of the log", Clients::logAppendTime);
            step("offsets for times", Clients::offsetsForTimes);
            step("seeking", Clients::seek);
            step("many partitions", Clients::manyPartitions);
            step("a fetch that waits", Clients::waitForRecords);
            step("offsets are listed", Clients::listOffsets);
            step("records are deleted", Clients::deleteRecords);
            step("configs are altered", Clients::alterConfigs);
            step("configs are refused", Clients::refuseConfigs);
            step("configs are explained", Clients::explainConfigs);
            step("partitions are added", Clients::createPartitions);
            step("log directories", Clients::logDirectories);
            step("a replica moves between directories", Clients::moveReplica);
            step("leaders are elected", Clients::electLeaders);
            step("replicas are reassigned", Clients::reassign);
            step("the cluster", Clients::describeCluster);
            step("producers", Clients::describeProducers);
            step("resources with configs", Clients::listResources);
            step("topics are deleted", Clients::deleteTopics);
        }
    }

    private static void step(String name, Step step) {
        System.out.println("== " + name);
        try {
            step.run();
        } catch (Throwable wrong) {
            System.out.println("threw " + name(wrong));
            wrong.printStackTrace();
        }
        System.out.flush();
    }

    // --- topics

    private static void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) {
            topics.add(new NewTopic("by-" + codec, 1, (short) 1));
        }
        topics.add(new NewTopic("times", 2, (short) 1));
        topics.add(new NewTopic("append-time", 1, (short) 1).configs(Map.of("message.timestamp.type", "LogAppendTime")));
        topics.add(new NewTopic("many", 20, (short) 1));
        topics.add(new NewTopic("moving", Map.of(0, List.of(1), 1, List.of(1))));
        topics.add(new NewTopic("with.dot", 1, (short) 1));
        topics.add(new NewTopic("defaults", Optional.empty(), Optional.empty()));
        topics.add(new NewTopic("compacted", 1, (short) 1).configs(Map.of("cleanup.policy", "compact", "segment.ms", "7000000")));
        CreateTopicsResult created = admin.createTopics(topics);
        for (NewTopic topic : topics) {
            String name = topic.name();
            ConfigEntry policy = created.config(name).get().get("cleanup.policy");
            System.out.println(name + ": " + created.numPartitions(name).get() + " partitions, "
                + created.replicationFactor(name).get() + " replicas, " + policy.value() + " by " + policy.source()
                + ", has an id: " + !created.topicId(name).get().equals(Uuid.ZERO_UUID));
        }
        CreateTopicsOptions only = new CreateTopicsOptions().validateOnly(true);
        answer("only validated", () -> admin.createTopics(List.of(new NewTopic("never", 1, (short) 1)), only).all());
        System.out.println(new TreeSet<>(admin.listTopics().names().get()));
    }

    private static void refuseTopics() throws Exception {
        List<NewTopic> topics = List.of(
            new NewTopic("times", 1, (short) 1),
            new NewTopic("not/legal", 1, (short) 1),
            new NewTopic("..", 1, (short) 1),
            new NewTopic("", 1, (short) 1),
            new NewTopic("x".repeat(250), 1, (short) 1),
            new NewTopic("with_dot", 1, (short) 1), // collides in the names of metrics
            new NewTopic("no-partition", 0, (short) 1),
            new NewTopic("few-partitions", -2, (short) 1),
            new NewTopic("no-replica", 1, (short) 0),
            new NewTopic("many-replicas", 1, (short) 3),
            new NewTopic("twice-there", Map.of(0, List.of(1, 1))),
            new NewTopic("not-from-0", Map.of(1, List.of(1))),
            new NewTopic("odd-value", 1, (short) 1).configs(Map.of("retention.ms", "long")),
            new NewTopic("odd-range", 1, (short) 1).configs(Map.of("segment.bytes", "1")),
            new NewTopic("odd-key", 1, (short) 1).configs(Map.of("retention.hours", "1"))
        );
        Map<String, KafkaFuture<Void>> answers = admin.createTopics(topics).values();
        for (NewTopic topic : topics) {
            answer(topic.name().length() > 100 ? "(long)" : topic.name(), () -> answers.get(topic.name()));
        }
    }

    private static void describeTopics() throws Exception {
        TopicDescription byName = admin.describeTopics(List.of("times")).allTopicNames().get().get("times");
        print(byName);
        Uuid id = byName.topicId();
        print(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id));
        answer("no such name", () -> admin.describeTopics(List.of("nowhere")).allTopicNames());
        Uuid none = Uuid.randomUuid();
        answer("no such id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(none))).allTopicIds());
        DescribeTopicsOptions rights = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        System.out.println(new TreeSet<>(
            admin.describeTopics(List.of("times"), rights).allTopicNames().get().get("times").authorizedOperations()));
        Map<String, TopicListing> listed = admin.listTopics().namesToListings().get();
        System.out.println("listed by the same id: " + listed.get("times").topicId().equals(id));
    }

    private static void print(TopicDescription topic) {
        System.out.println(topic.name() + ", internal " + topic.isInternal());
        topic.partitions().forEach(each -> System.out.println("  " + each.partition() + ": led by " + each.leader().id()
            + " on " + ids(each.replicas()) + ", in sync " + ids(each.isr())));
    }

    private static List<Integer> ids(Collection<org.apache.kafka.common.Node> nodes) {
        return nodes.stream().map(org.apache.kafka.common.Node::id).collect(Collectors.toList());
    }

    private static void deleteTopics() throws Exception {
        Uuid id = admin.describeTopics(List.of("compacted")).allTopicNames().get().get("compacted").topicId();
        answer("by name", () -> admin.deleteTopics(List.of("append-time")).all());
        answer("by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        answer("no such name", () -> admin.deleteTopics(List.of("nowhere")).all());
        Uuid none = Uuid.randomUuid();
        answer("no such id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(none))).all());
        until(() -> !admin.listTopics().names().get().contains("compacted"));
        answer("gone", () -> admin.describeTopics(List.of("compacted")).allTopicNames());
    }

    // --- records

    private static void produceAndConsume(String codec) throws Exception {
        String topic = "by-" + codec;
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec, "linger.ms", "50"))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int index = 0; index < 6; index++) {
                byte[] key = index % 3 == 2 ? null : bytes("key " + index);
                byte[] value = index == 4 ? null : bytes("value " + index + " " + "again ".repeat(10));
                var record = new ProducerRecord<>(topic, 0, START_MS + index, key, value);
                if (index % 2 == 1) {
                    record.headers().add("trace", bytes("t" + index)).add("none", null).add("trace", bytes("twice"));
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> each : sent) {
                System.out.println("acknowledged " + each.get().offset() + " at " + each.get().timestamp());
            }
        }
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", isolation), topic, 0)) {
                consumer.seekToBeginning(consumer.assignment());
                poll(consumer, 6).forEach(Clients::print);
            }
        }
    }

    private static void acknowledge() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            Map<String, String> settings = Map.of("acks", acks, "enable.idempotence", "false");
            try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
                var record = new ProducerRecord<byte[], byte[]>("defaults", 0, START_MS, null, bytes("acks " + acks));
                System.out.println("acks " + acks + ": offset " + producer.send(record).get().offset());
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "defaults", 0)) {
            poll(consumer, 3).forEach(Clients::print);
        }
    }

    private static void largeRecords() throws Exception {
        byte[] large = new byte[1_040_000];
        new Random(1).nextBytes(large);
        Map<String, String> settings = Map.of("max.request.size", "5000000", "buffer.memory", "90000000");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int index = 0; index < 3; index++) {
                producer.send(new ProducerRecord<>("by-none", large)).get();
            }
            refused("too large", () -> producer.send(new ProducerRecord<>("by-none", new byte[1_100_000])).get());
            refused("and the next is not", () -> producer.send(new ProducerRecord<>("by-none", bytes("small"))).get());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("fetch.max.bytes", "1000"), "by-none", 0)) {
            consumer.seek(new TopicPartition("by-none", 0), 6);
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 4)) {
                System.out.println(record.offset() + ": " + record.value().length + " bytes, the same: "
                    + Arrays.equals(record.value(), large));
            }
        }
    }

    private static void refuseRecords() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "strict");
        admin.createTopics(List.of(new NewTopic("strict", 1, (short) 1))).all().get();
        Map<String, String> impatient = Map.of("acks", "all", "retries", "0", "enable.idempotence", "false");
        try (KafkaProducer<byte[], byte[]> producer = producer(impatient)) {
            refused("no topic's name", () -> producer.partitionsFor("not/legal"));
            refused("without a key", () -> producer.send(new ProducerRecord<>("compacted", bytes("value"))).get());
            refused("with a key", () -> producer.send(new ProducerRecord<>("compacted", bytes("key"), null)).get());
            alter("a while", topic, "message.timestamp.before.max.ms", "60000", AlterConfigOp.OpType.SET);
            var old = new ProducerRecord<byte[], byte[]>("strict", 0, START_MS, null, bytes("old"));
            refusedSoon("too old", () -> producer.send(old).get());
            refused("of now", () -> producer.send(new ProducerRecord<>("strict", bytes("new"))).get());
            alter("fewer bytes", topic, "max.message.bytes", "1000", AlterConfigOp.OpType.SET);
            refusedSoon("larger than now", () -> producer.send(new ProducerRecord<>("strict", new byte[2000])).get());
            refused("small enough", () -> producer.send(new ProducerRecord<>("strict", new byte[500])).get());
            // More than the topic has replicas: no more than those are waited for.
            alter("more replicas", topic, "min.insync.replicas", "2", AlterConfigOp.OpType.SET);
            refused("for more replicas", () -> producer.send(new ProducerRecord<>("strict", bytes("alone"))).get());
        }
        admin.deleteTopics(List.of("strict")).all().get();
    }

    private static void packAnew() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "packed");
        admin.createTopics(List.of(new NewTopic("packed", 1, (short) 1))).all().get();
        int count = 0;
        for (String codec : List.of("uncompressed", "gzip", "snappy", "lz4", "zstd")) {
            alter(codec, topic, "compression.type", codec, AlterConfigOp.OpType.SET);
            for (String sent : List.of("none", "lz4")) {
                try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", sent))) {
                    byte[] value = bytes(sent + " as " + codec);
                    System.out.println("offset " + producer.send(new ProducerRecord<>("packed", 0, START_MS, null, value)).get().offset());
                    count++;
                }
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "packed", 0)) {
            poll(consumer, count).forEach(Clients::print);
        }
    }

    /** Clients that were there before must find the new one, which has another id. */
    private static void makeAnew() throws Exception {
        NewTopic topic = new NewTopic("anew", 1, (short) 1);
        admin.createTopics(List.of(topic)).all().get();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of());
             KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "anew", 0)) {
            for (int index = 0; index < 3; index++) {
                producer.send(new ProducerRecord<>("anew", bytes("before " + index))).get();
            }
            System.out.println(values(poll(consumer, 3)));
            admin.deleteTopics(List.of("anew")).all().get();
            until(() -> !admin.listTopics().names().get().contains("anew"));
            until(() -> created(topic));
            System.out.println("offset " + producer.send(new ProducerRecord<>("anew", bytes("after"))).get().offset());
            System.out.println(values(poll(consumer, 1)));
        }
    }

    private static boolean created(NewTopic topic) throws Exception {
        try {
            admin.createTopics(List.of(topic)).all().get();
            return true;
        } catch (ExecutionException stillThere) {
            return false;
        }
    }

    private static void logAppendTime() throws Exception {
        long before = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "zstd"))) {
            var record = new ProducerRecord<byte[], byte[]>("append-time", 0, START_MS, null, bytes("now"));
            System.out.println("acknowledged with its own time: " + (producer.send(record).get().timestamp() >= before));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "append-time", 0)) {
            ConsumerRecord<byte[], byte[]> record = poll(consumer, 1).get(0);
            System.out.println(record.timestampType() + ", now: " + (record.timestamp() >= before));
        }
    }

    private static void offsetsForTimes() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            // One batch each; the latest time is not the last.
            for (int second : List.of(0, 1, 2, 3, 9, 4, 5)) {
                producer.send(new ProducerRecord<>("times", 0, START_MS + 1000 * second, null, bytes("at " + second))).get();
            }
        }
        TopicPartition full = new TopicPartition("times", 0);
        TopicPartition empty = new TopicPartition("times", 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "times", 0, 1)) {
            for (long offset : new long[] {-5000, 0, 2000, 2001, 3500, 9000, 9001}) {
                var found = consumer.offsetsForTimes(Map.of(full, START_MS + offset, empty, START_MS + offset));
                System.out.println(offset + ": " + found.get(full) + ", " + found.get(empty));
            }
            System.out.println("from " + new TreeMap<>(strings(consumer.beginningOffsets(List.of(full, empty))))
                + " to " + new TreeMap<>(strings(consumer.endOffsets(List.of(full, empty)))));
        }
    }

    private static void seek() throws Exception {
        TopicPartition partition = new TopicPartition("times", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("max.poll.records", "2"), "times", 0)) {
            for (long offset : new long[] {5, 0, 3, 6}) {
                consumer.seek(partition, offset);
                System.out.println("from " + offset + ": " + values(poll(consumer, 1)));
            }
            consumer.seekToEnd(List.of(partition));
            System.out.println("end at " + consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            System.out.println("beginning at " + consumer.position(partition));
            System.out.println("lag " + consumer.currentLag(partition));
            consumer.partitionsFor("times").stream().sorted((a, b) -> a.partition() - b.partition())
                .forEach(info -> System.out.println("partition " + info.partition() + " led by " + info.leader().id()));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "none"), "times", 0)) {
            consumer.seek(partition, 99);
            refused("beyond the end", () -> poll(consumer, 1));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "earliest"), "times", 0)) {
            consumer.seek(partition, 99);
            System.out.println("reset: " + values(poll(consumer, 1)).get(0));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("allow.auto.create.topics", "false"), "times", 0)) {
            System.out.println("partitions of no topic: " + consumer.partitionsFor("nowhere"));
        }
    }

    /** Sessions of fetches: partitions that come, pause and are forgotten. */
    private static void manyPartitions() throws Exception {
        Map<Integer, Integer> sent = new TreeMap<>();
        int[] partitions = IntStream.range(0, 20).toArray();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "lz4"));
             KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "many", partitions)) {
            for (int turn = 0; turn < 3; turn++) {
                List<Future<RecordMetadata>> answers = new ArrayList<>();
                for (int index = 0; index < 1000; index++) {
                    answers.add(producer.send(new ProducerRecord<>("many", bytes("k" + index), bytes("turn " + turn))));
                }
                for (Future<RecordMetadata> each : answers) {
                    sent.merge(each.get().partition(), 1, Integer::sum);
                }
                if (turn == 1) {
                    List<TopicPartition> odd = consumer.assignment().stream()
                        .filter(each -> each.partition() % 2 == 1).collect(Collectors.toList());
                    consumer.pause(odd);
                    int even = answers.stream().mapToInt(each -> partition(each) % 2 == 0 ? 1 : 0).sum();
                    System.out.println("of even partitions only: "
                        + poll(consumer, even).stream().allMatch(record -> record.partition() % 2 == 0));
                    consumer.resume(odd);
                    System.out.println("of odd ones then: " + poll(consumer, 1000 - even).size());
                } else {
                    System.out.println("turn " + turn + ": " + poll(consumer, 1000).size());
                }
            }
            System.out.println("by key: " + sent);
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            System.out.println("all there: " + sent.entrySet().stream()
                .allMatch(each -> ends.get(new TopicPartition("many", each.getKey())) == (long) each.getValue()));
        }
    }

    private static int partition(Future<RecordMetadata> sent) {
        try {
            return sent.get().partition();
        } catch (Exception wrong) {
            throw new IllegalStateException(wrong);
        }
    }

    private static void waitForRecords() throws Exception {
        // Longer than anyone here has patience: only a fetch that is woken brings the record.
        Map<String, String> slow = Map.of(
            "fetch.max.wait.ms", "100000", "request.timeout.ms", "120000", "default.api.timeout.ms", "120000");
        KafkaConsumer<byte[], byte[]> consumer = consumer(slow, "times", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            System.out.println("position " + consumer.position(new TopicPartition("times", 1)));
            System.out.println("nothing yet: " + consumer.poll(Duration.ofMillis(300)).isEmpty());
            producer.send(new ProducerRecord<>("times", 1, START_MS, null, bytes("awaited"))).get();
            System.out.println(values(poll(consumer, 1)));
        } finally {
            consumer.close(Duration.ZERO); // without an answer to the next fetch
        }
    }

    // --- offsets

    private static void listOffsets() throws Exception {
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
            "earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "latest time", OffsetSpec.maxTimestamp(),
            "by time", OffsetSpec.forTimestamp(START_MS + 1500), "by no time", OffsetSpec.forTimestamp(START_MS + 90000),
            "earliest local", OffsetSpec.earliestLocal(), "latest tiered", OffsetSpec.latestTiered()));
        for (IsolationLevel level : IsolationLevel.values()) {
            for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
                TopicPartition partition = new TopicPartition("times", 0);
                var found = admin.listOffsets(Map.of(partition, spec.getValue()), new ListOffsetsOptions(level))
                    .partitionResult(partition).get();
                System.out.println(level + " " + spec.getKey() + ": " + found.offset() + " at " + found.timestamp()
                    + ", epoch " + (found.leaderEpoch().isPresent() ? "known" : "unknown"));
            }
        }
    }

    private static void deleteRecords() throws Exception {
        TopicPartition partition = new TopicPartition("times", 0);
        for (long before : new long[] {2, 1, -1, 99}) {
            var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before)));
            answer("before " + before, () -> deleted.lowWatermarks().get(partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "times", 0)) {
            System.out.println(strings(consumer.beginningOffsets(List.of(partition))));
        }
        TopicPartition compacted = new TopicPartition("compacted", 0);
        var deleted = admin.deleteRecords(Map.of(compacted, RecordsToDelete.beforeOffset(-1)));
        answer("of a compacted topic", () -> deleted.lowWatermarks().get(compacted));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            // The tools ask for these times later.
            for (int second : List.of(1, 2, 3, 8, 4)) {
                producer.send(new ProducerRecord<>("times", 0, START_MS + 1000 * second, null, bytes("at " + second))).get();
            }
        }
    }

    // --- configs

    private static void alterConfigs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "defaults");
        alter("set", topic, "retention.ms", "60000", AlterConfigOp.OpType.SET);
        alter("append", topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        print(topic, Set.of("retention.ms", "cleanup.policy"));
        alter("subtract", topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        alter("delete", topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        print(topic, Set.of("retention.ms", "cleanup.policy"));
        alter("delete", topic, "cleanup.policy", "", AlterConfigOp.OpType.DELETE);
        AlterConfigsOptions only = new AlterConfigsOptions().validateOnly(true);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("flush.ms", "9"), AlterConfigOp.OpType.SET);
        answer("only validated", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(set)), only).all());
        print(topic, Set.of("retention.ms", "cleanup.policy", "flush.ms"));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        String key = "log.cleaner.backoff.ms";
        alter("all brokers", all, key, "30000", AlterConfigOp.OpType.SET);
        untilValue(broker, key, "30000");
        alter("one broker", broker, key, "20000", AlterConfigOp.OpType.SET);
        untilValue(broker, key, "20000");
        print(broker, Set.of(key));
        print(all, Set.of(key));
        alter("one broker", broker, key, "", AlterConfigOp.OpType.DELETE);
        untilValue(broker, key, "30000");
        print(broker, Set.of(key));
        alter("all brokers", all, key, "", AlterConfigOp.OpType.DELETE);
        untilValue(broker, key, "15000");
        print(broker, Set.of(key));
    }

    private static void refuseConfigs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "defaults");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        alter("odd value", topic, "retention.ms", "long", AlterConfigOp.OpType.SET);
        alter("odd range", topic, "min.cleanable.dirty.ratio", "7", AlterConfigOp.OpType.SET);
        alter("odd key", topic, "retention.hours", "1", AlterConfigOp.OpType.SET);
        alter("append to what is no list", topic, "retention.ms", "1", AlterConfigOp.OpType.APPEND);
        alter("no such topic", new ConfigResource(ConfigResource.Type.TOPIC, "nowhere"), "retention.ms", "1", AlterConfigOp.OpType.SET);
        alter("needs a restart", broker, "broker.rack", "here", AlterConfigOp.OpType.SET);
        alter("odd value of a broker", broker, "log.cleaner.threads", "none", AlterConfigOp.OpType.SET);
        ConfigResource nowhere = new ConfigResource(ConfigResource.Type.TOPIC, "nowhere");
        answer("describe no topic", () -> admin.describeConfigs(List.of(nowhere)).all());
    }

    private static void alter(String what, ConfigResource resource, String key, String value, AlterConfigOp.OpType how) {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), how);
        answer(what + " " + key, () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    /** Kafka's brokers hear of their configs a little after they were written. */
    private static void untilValue(ConfigResource resource, String key, String value) throws Exception {
        if (!hearsAtOnce) {
            until(() -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value().equals(value));
        }
    }

    private static void print(ConfigResource resource, Set<String> keys) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        for (ConfigEntry entry : sorted(admin.describeConfigs(List.of(resource), options).all().get().get(resource))) {
            if (keys.contains(entry.name())) {
                String synonyms = entry.synonyms().stream()
                    .map(each -> each.source() + ":" + each.name() + "=" + each.value()).collect(Collectors.joining(", "));
                System.out.println("  " + entry.name() + "=" + entry.value() + " (" + entry.source() + ") of " + synonyms);
            }
        }
    }

    private static void explainConfigs() throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "times");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        var described = admin.describeConfigs(List.of(topic, broker), options).all().get();
        for (ConfigEntry entry : sorted(described.get(topic))) {
            System.out.println(entry.name() + ": " + entry.type() + (entry.isReadOnly() ? ", read-only" : "")
                + (entry.isSensitive() ? ", sensitive" : "") + (explained(entry) ? "" : ", not explained"));
        }
        Map<String, ConfigEntry> ofBroker = new HashMap<>();
        described.get(broker).entries().forEach(entry -> ofBroker.put(entry.name(), entry));
        for (String name : List.of("broker.id", "log.cleaner.threads", "message.max.bytes", "ssl.keystore.password",
                "listeners", "num.io.threads", "log.retention.hours", "ssl.cipher.suites", "security.providers")) {
            ConfigEntry entry = ofBroker.get(name);
            System.out.println("broker's " + name + ": " + entry.type() + (entry.isReadOnly() ? ", read-only" : "")
                + (entry.isSensitive() ? ", sensitive" : ""));
        }
        List<String> silent = ofBroker.values().stream().filter(entry -> !explained(entry) && !isInternal(entry))
            .map(ConfigEntry::name).sorted().collect(Collectors.toList());
        System.out.println("broker's, not explained: " + silent);
    }

    private static boolean explained(ConfigEntry entry) {
        return entry.documentation() != null && !entry.documentation().isBlank();
    }

    private static boolean isInternal(ConfigEntry entry) {
        return entry.name().startsWith("internal.") || entry.name().startsWith("unstable.");
    }

    private static List<ConfigEntry> sorted(Config config) {
        return config.entries().stream().sorted((a, b) -> a.name().compareTo(b.name())).collect(Collectors.toList());
    }

    private static void listResources() throws Exception {
        // Each version has its own way to ask.
        for (java.lang.reflect.Method method : Admin.class.getMethods()) {
            if (method.getName().equals("listClientMetricsResources") && method.getParameterCount() == 0) {
                Object result = method.invoke(admin);
                answer("client metrics", () -> ask(result, "all"));
            }
            if (method.getName().equals("listConfigResources") && method.getParameterCount() == 0) {
                Collection<?> found = (Collection<?>) ask(method.invoke(admin), "all").get();
                System.out.println("a topic is among all: " + found.toString().contains("name='times'"));
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static KafkaFuture<Object> ask(Object result, String method) throws Exception {
        return (KafkaFuture<Object>) result.getClass().getMethod(method).invoke(result);
    }

    // --- partitions and replicas

    private static void createPartitions() throws Exception {
        answer("to 3", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(3))).all());
        answer("to 3 again", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(3))).all());
        answer("to 2", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(2))).all());
        answer("placed", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(4, List.of(List.of(1))))).all());
        answer("placed nowhere", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(5, List.of(List.of(8))))).all());
        answer("placed twice", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(5, List.of(List.of(1), List.of(1))))).all());
        answer("of no topic", () -> admin.createPartitions(Map.of("nowhere", NewPartitions.increaseTo(2))).all());
        CreatePartitionsOptions only = new CreatePartitionsOptions().validateOnly(true);
        answer("only validated", () -> admin.createPartitions(Map.of("defaults", NewPartitions.increaseTo(9)), only).all());
        until(() -> admin.describeTopics(List.of("defaults")).allTopicNames().get().get("defaults").partitions().size() == 4);
        print(admin.describeTopics(List.of("defaults")).allTopicNames().get().get("defaults"));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            System.out.println("offset " + producer.send(new ProducerRecord<>("defaults", 3, null, bytes("new"))).get().offset());
        }
    }

    private static void logDirectories() throws Exception {
        Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        for (int index = 0; index < 2; index++) {
            LogDirDescription directory = found.get(directories[index]);
            System.out.println("directory " + index + ": error " + directory.error() + ", room known: "
                + (directory.totalBytes().getAsLong() >= directory.usableBytes().getAsLong() && directory.usableBytes().getAsLong() > 0));
        }
        Map<String, Long> sizes = new TreeMap<>();
        for (LogDirDescription directory : found.values()) {
            directory.replicaInfos().forEach((partition, replica) -> {
                if (partition.topic().startsWith("by-")) {
                    sizes.put(partition.toString(), replica.size());
                }
            });
        }
        System.out.println("records by none fill " + (sizes.get("by-none-0") > 3_120_000 ? "enough" : "" + sizes));
        System.out.println(sizes.keySet());
    }

    private static void moveReplica() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int index = 0; index < 50; index++) {
                producer.send(new ProducerRecord<>("moving", 0, null, bytes("before " + index))).get();
            }
            TopicPartitionReplica replica = new TopicPartitionReplica("moving", 0, 1);
            String from = directoryOf(replica);
            String to = from.equals(directories[0]) ? directories[1] : directories[0];
            answer("to where it is", () -> admin.alterReplicaLogDirs(Map.of(replica, from)).all());
            answer("to the other", () -> admin.alterReplicaLogDirs(Map.of(replica, to)).all());
            producer.send(new ProducerRecord<>("moving", 0, null, bytes("on the way"))).get();
            until(() -> directoryOf(replica).equals(to) && futureOf(replica) == null);
            System.out.println("moved");
            System.out.println("offset " + producer.send(new ProducerRecord<>("moving", 0, null, bytes("after"))).get().offset());
            answer("to no directory", () -> admin.alterReplicaLogDirs(Map.of(replica, "/no/such/directory")).all());
            TopicPartitionReplica none = new TopicPartitionReplica("nowhere", 0, 1);
            answer("of no topic", () -> admin.alterReplicaLogDirs(Map.of(none, to)).all());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(), "moving", 0)) {
            List<String> values = values(poll(consumer, 52));
            System.out.println(values.size() + " records, " + values.get(0) + " to " + values.get(51));
        }
    }

    private static String directoryOf(TopicPartitionReplica replica) throws Exception {
        return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir();
    }

    private static String futureOf(TopicPartitionReplica replica) throws Exception {
        return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getFutureReplicaLogDir();
    }

    private static void electLeaders() throws Exception {
        TopicPartition there = new TopicPartition("times", 0);
        TopicPartition gone = new TopicPartition("nowhere", 0);
        for (ElectionType type : ElectionType.values()) {
            var answers = admin.electLeaders(type, Set.of(there, gone)).partitions().get();
            for (TopicPartition partition : List.of(there, gone)) {
                System.out.println(type + " " + partition + ": " + answers.get(partition).map(Clients::name).orElse("elected"));
            }
            System.out.println(type + " of all: " + admin.electLeaders(type, null).partitions().get());
        }
    }

    private static void reassign() throws Exception {
        TopicPartition partition = new TopicPartition("times", 0);
        for (List<Integer> replicas : List.of(List.of(1), List.of(9), List.of(1, 1), List.<Integer>of())) {
            answer("to " + replicas, () -> admin.alterPartitionReassignments(
                Map.of(partition, Optional.of(new NewPartitionReassignment(replicas.isEmpty() ? List.of(-1) : replicas)))).all());
        }
        answer("cancel", () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all());
        TopicPartition gone = new TopicPartition("nowhere", 0);
        answer("of no topic", () -> admin.alterPartitionReassignments(
            Map.of(gone, Optional.of(new NewPartitionReassignment(List.of(1))))).all());
        System.out.println("on the way: " + admin.listPartitionReassignments().reassignments().get());
        System.out.println("of one: " + admin.listPartitionReassignments(Set.of(partition)).reassignments().get());
    }

    // --- the cluster

    private static void describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        System.out.println("brokers " + ids(cluster.nodes().get()) + ", controller " + cluster.controller().get().id());
        System.out.println("address: " + bootstrap.equals(cluster.controller().get().host() + ":" + cluster.controller().get().port()));
        System.out.println("id of " + cluster.clusterId().get().length() + " characters");
        System.out.println(new TreeSet<>(cluster.authorizedOperations().get()));
        answer("features", () -> admin.describeFeatures().featureMetadata());
    }

    private static void describeProducers() throws Exception {
        TopicPartition partition = new TopicPartition("by-zstd", 0);
        for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            System.out.println("epoch " + state.producerEpoch() + ", sequence " + state.lastSequence() + ", time "
                + state.lastTimestamp() + ", coordinator " + state.coordinatorEpoch() + ", transaction " + state.currentTransactionStartOffset());
        }
    }

    // --- what they share

    private static Map<String, Object> settings(Map<String, String> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
        return new KafkaProducer<>(settings(more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> more, String topic, int... partitions) {
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        settings.putAll(settings(more));
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(Arrays.stream(partitions).mapToObj(each -> new TopicPartition(topic, each)).collect(Collectors.toList()));
        return consumer;
    }

    private static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (records.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("only " + records.size() + " records of " + count + " came");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void until(Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("it did not come to be");
            }
            Thread.sleep(50);
        }
    }

    private static void answer(String what, Ask ask) {
        refused(what, () -> ask.get().get());
    }

    private static void refused(String what, Step step) {
        try {
            step.run();
            System.out.println(what + ": done");
        } catch (Exception refused) {
            System.out.println(what + ": " + name(refused));
        }
    }

    /** Kafka's brokers hear of a config a little after it was written; one that hears at once must refuse at once. */
    private static void refusedSoon(String what, Step step) throws Exception {
        if (!hearsAtOnce) {
            until(() -> {
                try {
                    step.run();
                    return false;
                } catch (ExecutionException refused) {
                    return true;
                }
            });
        }
        refused(what, step);
    }

    private static String name(Throwable thrown) {
        return (thrown instanceof ExecutionException ? thrown.getCause() : thrown).getClass().getSimpleName();
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        String headers = Arrays.stream(record.headers().toArray()).map(Clients::text).collect(Collectors.joining(" "));
        System.out.println(record.offset() + " " + record.timestampType() + " " + record.timestamp() + " "
            + text(record.key()) + "=" + text(record.value()) + " [" + headers + "]");
    }

    private static String text(Header header) {
        return header.key() + ":" + text(header.value());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static List<String> values(Collection<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> text(record.value())).collect(Collectors.toList());
    }

    private static Map<String, Long> strings(Map<TopicPartition, Long> offsets) {
        return offsets.entrySet().stream().collect(Collectors.toMap(each -> each.getKey().toString(), Map.Entry::getValue));
    }
}
