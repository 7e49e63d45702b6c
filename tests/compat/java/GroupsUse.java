import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** A broker as the steps of the programs about groups use it, and how they print: `== name` before each step. */
final class GroupsUse implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofSeconds(40);
    private static final long START_MS = 1_600_000_000_000L;

    final Admin admin;
    private final String bootstrap;
    private final KafkaProducer<String, String> producer;

    interface Step {
        void run() throws Exception;
    }

    interface Ask {
        KafkaFuture<?> get() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    GroupsUse(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    @Override
    public void close() {
        producer.close();
        admin.close();
    }

    // --- members

    /** How a group's members divide the partitions; `consumer` is the protocol in which the broker does it. */
    static Map<String, Object> protocol(String name) {
        Map<String, Object> settings = new HashMap<>();
        if (name.startsWith("consumer")) {
            settings.put("group.protocol", "consumer");
            if (name.equals("consumer-range")) {
                settings.put("group.remote.assignor", "range");
            }
            return settings;
        }
        String assignor = Map.of("range", "RangeAssignor", "cooperative", "CooperativeStickyAssignor").get(name);
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        settings.put("heartbeat.interval.ms", "200"); // to hear soon of other members
        return settings;
    }

    /**
     * Clients of Kafka 3.9 have the newer protocol to be tried: they own what they are given, but now and then read what was
     * committed again, or nothing at all, beside whichever broker.
     */
    static boolean readsFaithfully(String protocol) {
        return !protocol.startsWith("consumer") || !AppInfoParser.getVersion().startsWith("3.9.");
    }

    Map<String, Object> settings(String protocol, String group, String member) {
        Map<String, Object> settings = protocol(protocol);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("client.id", member);
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "500"); // to hear soon of topics
        return settings;
    }

    Map<String, Object> settings(String protocol, String group, String member, String instance) {
        Map<String, Object> settings = settings(protocol, group, member);
        settings.put("group.instance.id", instance);
        return settings;
    }

    /** Waits until each has as many partitions as said, in any order, and none has another's. */
    static void untilOwned(List<GroupsMember> members, Integer... counts) throws Exception {
        List<Integer> wanted = sorted(List.of(counts));
        until(() -> {
            Set<TopicPartition> all = new HashSet<>();
            int sum = 0;
            for (GroupsMember member : members) {
                if (member.failure() != null) {
                    throw member.failure();
                }
                sum += member.owned().size();
                all.addAll(member.owned());
            }
            return sorted(members.stream().map(member -> member.owned().size()).toList()).equals(wanted) && all.size() == sum;
        }, () -> members.stream().map(GroupsMember::ownedNames).toList().toString());
    }

    private static List<Integer> sorted(List<Integer> numbers) {
        return numbers.stream().sorted().toList();
    }

    // --- topics and records

    void create(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    /** As many to each partition, a second apart from those before them. */
    void produce(String topic, int partitions, int count) throws Exception {
        Future<?> last = null;
        for (int index = 0; index < count; index++) {
            for (int partition = 0; partition < partitions; partition++) {
                last = producer.send(new ProducerRecord<>(topic, partition, START_MS + 1000L * index, null, "value " + index));
            }
        }
        producer.flush();
        last.get();
    }

    // --- groups

    ConsumerGroupDescription described(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    /** The offsets of a group, sorted. */
    Map<String, Long> committed(String group) throws Exception {
        Map<String, Long> offsets = new TreeMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((partition, committed) -> offsets.put(partition.toString(), committed.offset()));
        return offsets;
    }

    /** Waits until as many have come, to members of those protocols, and says whether they came as they should. */
    static void untilRead(GroupsRecords records, int count, String... protocols) throws Exception {
        if (Arrays.stream(protocols).allMatch(GroupsUse::readsFaithfully)) {
            until(() -> records.count() == count, records::toString);
            System.out.println(count + " records, " + records.verdict());
        }
    }

    // --- steps

    static void step(String name, Step step) {
        System.out.println("== " + name);
        try {
            step.run();
        } catch (Throwable wrong) {
            System.out.println("threw " + name(wrong) + ": " + wrong.getMessage());
            wrong.printStackTrace();
        }
        System.out.flush();
    }

    static void answer(String what, Ask ask) {
        refused(what, () -> ask.get().get());
    }

    static void refused(String what, Step step) {
        try {
            step.run();
            System.out.println(what + ": done");
        } catch (Exception refused) {
            System.out.println(what + ": " + name(refused));
        }
    }

    static String name(Throwable thrown) {
        return (thrown instanceof ExecutionException ? thrown.getCause() : thrown).getClass().getSimpleName();
    }

    static void until(Condition condition) throws Exception {
        until(condition, () -> "it did not come to be");
    }

    static void until(Condition condition, Supplier<String> otherwise) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(otherwise.get());
            }
            Thread.sleep(20);
        }
    }

    static <T> String orNone(Optional<T> value) {
        return value.map(String::valueOf).orElse("none");
    }
}
