import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

/**
 * The operators of Kafka Streams on the records of standard input, in their order: "topic key value timestamp", where "-" is
 * null. Prints "operator key value timestamp" for each result.
 */
public final class Streams {
    private static final List<String> OPERATORS = List.of(
            "table-inner", "table-left", "table-outer", "stream-inner", "stream-left", "foreign-inner", "foreign-left",
            "count", "sums");

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
        KTable<String, String> left = builder.table("left", texts);
        KTable<String, String> right = builder.table("right", texts);
        KStream<String, String> stream = builder.stream("stream", texts);
        left.join(right, Streams::joined).toStream().to("table-inner");
        left.leftJoin(right, Streams::joined).toStream().to("table-left");
        left.outerJoin(right, Streams::joined).toStream().to("table-outer");
        stream.join(right, Streams::joined).to("stream-inner");
        stream.leftJoin(right, Streams::joined).to("stream-left");
        left.join(right, Streams::foreignKey, Streams::joined).toStream().to("foreign-inner");
        left.leftJoin(right, Streams::foreignKey, Streams::joined).toStream().to("foreign-left");
        stream.groupByKey().count().toStream().mapValues(String::valueOf).to("count");
        left.groupBy((key, value) -> org.apache.kafka.streams.KeyValue.pair(String.valueOf(foreignKey(value)), value))
                .aggregate(() -> "0", (key, value, total) -> sum(total, value, 1), (key, value, total) -> sum(total, value, -1))
                .toStream().to("sums");
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[0]);
        // The driver commits after each record, which takes long with stores on disk.
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config, Instant.ofEpochMilli(0))) {
            Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
            for (String name : List.of("left", "right", "stream")) {
                inputs.put(name, driver.createInputTopic(name, new StringSerializer(), new StringSerializer()));
            }
            String text = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
            for (String line : text.split("\n")) {
                String[] parts = line.split(" ");
                inputs.get(parts[0]).pipeInput(parts[1], parts[2].equals("-") ? null : parts[2], Long.parseLong(parts[3]));
            }
            for (String operator : OPERATORS) {
                TestOutputTopic<String, String> output =
                        driver.createOutputTopic(operator, new StringDeserializer(), new StringDeserializer());
                for (TestRecord<String, String> one : new ArrayList<>(output.readRecordsToList())) {
                    String value = one.value() == null ? "-" : one.value();
                    System.out.println(operator + " " + one.key() + " " + value + " " + one.timestamp());
                }
            }
        }
    }

    private static String joined(String left, String right) {
        return left + "|" + right;
    }

    /** The part of a value before the colon; none if it is empty. */
    private static String foreignKey(String value) {
        String key = value.split(":")[0];
        return key.isEmpty() ? null : key;
    }

    private static String sum(String total, String value, int sign) {
        return String.valueOf(Long.parseLong(total) + sign * Long.parseLong(value.split(":")[1]));
    }
}
