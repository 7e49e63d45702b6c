import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Assigns what groups are described on its input, a line each, and prints who got what, a line each.
 *
 * A case is "assign NAME", then "topic NAME RACKS;RACKS;…" (racks of a partition, by commas) and "member ID INSTANCE
 * BLOB" lines, then "end". A dash stands for nothing; BLOB is the member's subscription in hex, as our client writes it.
 * Printed for each member: its id, its partitions, its subscription in hex as Java writes it, its assignment likewise.
 */
public class Assignors {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            ConsumerPartitionAssignor assignor = assignor(line.split(" ")[1]);
            List<PartitionInfo> partitions = new ArrayList<>();
            Map<String, Node> nodes = new HashMap<>();
            Map<String, Subscription> members = new HashMap<>();
            Map<String, String> written = new HashMap<>();
            while (!(line = input.readLine()).equals("end")) {
                String[] words = line.split(" ");
                if (words[0].equals("topic")) {
                    String[] racks = words[2].split(";");
                    for (int index = 0; index < racks.length; index++) {
                        partitions.add(partition(words[1], index, racks[index], nodes));
                    }
                } else {
                    Subscription subscription =
                        ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HEX.parseHex(words[3])));
                    if (!words[2].equals("-")) {
                        subscription.setGroupInstanceId(Optional.of(words[2]));
                    }
                    written.put(words[1], hex(ConsumerProtocol.serializeSubscription(subscription)));
                    members.put(words[1], subscription);
                }
            }
            Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
            Map<String, Assignment> shares = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            for (Map.Entry<String, Assignment> share : new TreeMap<>(shares).entrySet()) {
                Set<String> names = new TreeSet<>();
                for (TopicPartition one : share.getValue().partitions()) {
                    names.add(one.topic() + ":" + one.partition());
                }
                List<TopicPartition> sorted = new ArrayList<>(share.getValue().partitions());
                sorted.sort((one, other) -> one.topic().equals(other.topic())
                    ? Integer.compare(one.partition(), other.partition()) : one.topic().compareTo(other.topic()));
                System.out.println(share.getKey() + " " + (names.isEmpty() ? "-" : String.join(",", names))
                    + " " + written.get(share.getKey())
                    + " " + hex(ConsumerProtocol.serializeAssignment(new Assignment(sorted))));
            }
            System.out.println("end");
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static PartitionInfo partition(String topic, int index, String racks, Map<String, Node> nodes) {
        List<Node> replicas = new ArrayList<>();
        for (String rack : racks.equals("-") ? new String[] {""} : racks.split(",")) {
            replicas.add(nodes.computeIfAbsent(
                rack, name -> new Node(nodes.size(), "localhost", 9092, name.isEmpty() ? null : name)));
        }
        Node[] all = replicas.toArray(new Node[0]);
        return new PartitionInfo(topic, index, all[0], all, all);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
