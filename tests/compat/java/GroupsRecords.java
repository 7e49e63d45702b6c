import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** What the members of a group have received, by partition. */
final class GroupsRecords {
    private final Map<String, List<Long>> offsets = new TreeMap<>();

    synchronized void add(ConsumerRecord<?, ?> record) {
        offsets.computeIfAbsent(record.topic() + "-" + record.partition(), none -> new ArrayList<>()).add(record.offset());
    }

    /** How many different ones. */
    synchronized int count() {
        return offsets.values().stream().mapToInt(each -> new HashSet<>(each).size()).sum();
    }

    /** Says whether each partition's came in order, without a gap and none twice; if not, what came. */
    synchronized String verdict() {
        return inOrder() ? "each in order and once" : "not in order, or not once: " + offsets;
    }

    private boolean inOrder() {
        for (List<Long> each : offsets.values()) {
            for (int index = 0; index < each.size(); index++) {
                if (each.get(index) != index) {
                    return false;
                }
            }
        }
        return true;
    }

    @Override
    public synchronized String toString() {
        return offsets.toString();
    }
}
