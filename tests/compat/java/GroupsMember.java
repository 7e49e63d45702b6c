import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.FutureTask;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A consumer that subscribes and polls in a thread of its own, and remembers what it was given and what was taken. */
final class GroupsMember implements ConsumerRebalanceListener, AutoCloseable {
    private static final Duration POLL = Duration.ofMillis(50);

    interface Task<T> {
        T run(KafkaConsumer<String, String> consumer) throws Exception;
    }

    private final KafkaConsumer<String, String> consumer;
    private final GroupsRecords records;
    private final ConcurrentLinkedQueue<FutureTask<?>> tasks = new ConcurrentLinkedQueue<>();
    private final List<Integer> changes = new ArrayList<>();
    private final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();
    private final Thread thread;
    private volatile boolean closing;
    private volatile Exception failure;

    /** Subscribes to a topic; what comes is added to the records. */
    GroupsMember(Map<String, Object> settings, String topic, GroupsRecords records) {
        this(settings, (consumer, listener) -> consumer.subscribe(List.of(topic), listener), records);
    }

    GroupsMember(
            Map<String, Object> settings,
            BiConsumer<KafkaConsumer<String, String>, ConsumerRebalanceListener> subscribe,
            GroupsRecords records) {
        this.records = records;
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        subscribe.accept(consumer, this);
        thread = new Thread(this::work, String.valueOf(settings.get("client.id")));
        thread.setDaemon(true);
        thread.start();
    }

    private void work() {
        try {
            while (!closing) {
                consumer.poll(POLL).forEach(records::add);
                for (FutureTask<?> task = tasks.poll(); task != null; task = tasks.poll()) {
                    task.run();
                }
            }
        } catch (Exception wrong) {
            failure = wrong;
        } finally {
            consumer.close();
        }
    }

    /** Runs a task between two polls. */
    <T> T ask(Task<T> task) throws Exception {
        FutureTask<T> asked = new FutureTask<>(() -> task.run(consumer));
        tasks.add(asked);
        return asked.get();
    }

    /** What ended it, or null. */
    Exception failure() {
        return failure;
    }

    Set<TopicPartition> owned() {
        return owned;
    }

    List<String> ownedNames() {
        return new ArrayList<>(owned.stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new)));
    }

    /** How many partitions came and went, in order: what comes, or goes, in steps counts as one. */
    synchronized String changes() {
        List<Integer> runs = new ArrayList<>();
        for (int change : changes) {
            int last = runs.size() - 1;
            if (last >= 0 && (runs.get(last) > 0) == (change > 0)) {
                runs.set(last, runs.get(last) + change);
            } else {
                runs.add(change);
            }
        }
        return runs.stream().map(each -> String.format("%+d", each)).collect(Collectors.joining(" "));
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        change(partitions.size());
        owned.addAll(partitions);
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        change(-partitions.size());
        owned.removeAll(partitions);
    }

    private void change(int count) {
        if (count != 0) {
            changes.add(count);
        }
    }

    /** Stops as a program does that ends in peace. */
    @Override
    public void close() throws InterruptedException {
        closing = true;
        thread.join();
    }
}
