import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import kafka.zk.*;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.zookeeper.data.Stat;

/** Reads nodes, one a line (kind, content in base64), by Kafka's own code, and prints each as Kafka would write it.
 *  A node that Kafka refuses is answered by ! and why. Two more kinds ask for the paths that Kafka makes at its start,
 *  and for the name of the node of a user. */
public class Znodes {
    public static void main(String[] ignored) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 2);
            byte[] content = Base64.getDecoder().decode(parts[1]);
            try {
                System.out.println(Base64.getEncoder().encodeToString(again(parts[0], content)));
            } catch (Exception refused) {
                System.out.println("!" + refused.toString().replace('\n', ' '));
            }
        }
    }

    private static byte[] again(String kind, byte[] content) throws Exception {
        switch (kind) {
            case "cluster-id":
                return ClusterIdZNode.toJson(ClusterIdZNode.fromJson(content));
            case "controller-epoch":
                return ControllerEpochZNode.encode(ControllerEpochZNode.decode(content));
            case "controller": {
                var found = ControllerZNode.decodeController(content, 0);
                var text = new String(content, StandardCharsets.UTF_8);
                var timestamp = text.replaceAll(".*\"timestamp\":\"(-?\\d+)\".*", "$1");
                return ControllerZNode.encode(found.broker(), Long.parseLong(timestamp), (Integer) found.kraftEpoch().get());
            }
            case "broker": // with the time at which it is written
                return BrokerIdZNode.encode(BrokerIdZNode.decode(1, content));
            case "topic": {
                var found = TopicZNode.decode("t", content);
                return TopicZNode.encode(found.topicId(), found.assignment());
            }
            case "state":
                return TopicPartitionStateZNode.encode(TopicPartitionStateZNode.decode(content, new Stat()).get());
            case "config":
                return ConfigEntityZNode.encode(ConfigEntityZNode.decode(content));
            case "isr-change":
                return IsrChangeNotificationSequenceZNode.encode(IsrChangeNotificationSequenceZNode.decode(content));
            case "election":
                return PreferredReplicaElectionZNode.encode(PreferredReplicaElectionZNode.decode(content));
            case "reassignment":
                return ReassignPartitionsZNode.encode(ReassignPartitionsZNode.decode(content).toOption().get());
            case "log-dir-failure":
                return LogDirEventNotificationSequenceZNode.encode((Integer) LogDirEventNotificationSequenceZNode.decode(content).get());
            case "producer-ids":
                return ProducerIdBlockZNode.generateProducerIdBlockJson(ProducerIdBlockZNode.parseProducerIdBlockData(content));
            case "features":
                return FeatureZNode.encode(FeatureZNode.decode(content));
            case "consumer-offset":
                return ConsumerOffset.encode((Long) ConsumerOffset.decode(content).get());
            case "persistent-paths":
                return ZkData.PersistentZkPaths().mkString(" ").getBytes(StandardCharsets.UTF_8);
            case "entity-name":
                return Sanitizer.sanitize(new String(content, StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
