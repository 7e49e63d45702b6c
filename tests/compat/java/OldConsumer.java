import java.util.Collections;
import java.util.Properties;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;

/** The high-level consumer of Kafka 0.8: ZooKeeper's address, the group, a topic (or ~ and a pattern), and configs.
 *  Prints each record as topic, partition, offset and value, and leaves the group when its input ends. */
public class OldConsumer {
    public static void main(String[] args) throws Exception {
        var settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("group.id", args[1]);
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.interval.ms", "100");
        settings.put("rebalance.backoff.ms", "200");
        settings.put("rebalance.max.retries", "50");
        for (int index = 3; index < args.length; index++) {
            String[] pair = args[index].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        ConsumerConnector connector = kafka.consumer.Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        KafkaStream<byte[], byte[]> stream = args[2].startsWith("~")
            ? connector.createMessageStreamsByFilter(new Whitelist(args[2].substring(1)), 1).get(0)
            : connector.createMessageStreams(Collections.singletonMap(args[2], 1)).get(args[2]).get(0);
        var reader = new Thread(() -> {
            for (var record : stream) {
                System.out.println(
                    record.topic() + " " + record.partition() + " " + record.offset() + " " + new String(record.message()));
                System.out.flush();
            }
        });
        reader.setDaemon(true);
        reader.start();
        while (System.in.read() >= 0) { }
        connector.shutdown();
    }
}
