import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a group. It tells, as lines of JSON, what it consumes and which partitions come and go, and only then
 * commits. Arguments: a topic, and settings as `key=value`. Ends, by leaving the group, when its input ends.
 */
public class ClientMember {
    private static volatile boolean inputEnded;

    public static void main(String[] arguments) {
        Thread waiting = new Thread(ClientMember::waitForEnd);
        waiting.setDaemon(true);
        waiting.start();
        Map<String, Object> settings = new HashMap<>(Map.of("enable.auto.commit", "false"));
        for (int index = 1; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[0]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("revoked", partitions);
            }
        });
        while (!inputEnded) {
            List<String> lines = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                lines.add("[\"consumed\", \"" + record.topic() + "\", " + record.partition() + ", " + record.offset()
                    + ", \"" + record.value() + "\"]");
            }
            if (!lines.isEmpty()) {
                print(String.join("\n", lines));
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException late) {
                    print("[\"refused\", -1, \"" + late.getClass().getSimpleName() + "\"]");
                }
            }
        }
        consumer.close();
    }

    private static void waitForEnd() {
        try {
            System.in.readAllBytes();
        } catch (IOException gone) {
            // The end as well.
        }
        inputEnded = true;
    }

    private static void tell(String what, Collection<TopicPartition> partitions) {
        String names = partitions.stream().map(each -> "[\"" + each.topic() + "\", " + each.partition() + "]")
            .collect(Collectors.joining(", "));
        print("[\"" + what + "\", [" + names + "]]");
    }

    private static void print(String lines) {
        System.out.println(lines);
        System.out.flush();
    }
}
