import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Sliding windows of Kafka Streams on the records of standard input, in their order: "key value timestamp". The first argument
 * is a directory; all others are "difference:grace" in milliseconds. Prints "argument operator record key start end value
 * timestamp" for each result, where the record is the number of the one that caused it.
 */
public final class SlidingWindowTables {
    private static final String[] OPERATORS = {"updates", "final", "suppressed", "counts"};

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        var stream = builder.stream("in", Consumed.with(Serdes.String(), Serdes.String()));
        for (int number = 1; number < arguments.length; number++) {
            String[] sizes = arguments[number].split(":");
            SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(
                    Duration.ofMillis(Long.parseLong(sizes[0])), Duration.ofMillis(Long.parseLong(sizes[1])));
            TimeWindowedKStream<String, String> windowed = stream.groupByKey().windowedBy(windows);
            TimeWindowedKStream<String, String> closing = stream.groupByKey().windowedBy(windows);
            written(appended(windowed), number + "-updates");
            written(appended(closing.emitStrategy(EmitStrategy.onWindowClose())), number + "-final");
            written(appended(windowed).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())),
                    number + "-suppressed");
            written(windowed.count(kept(Serdes.Long())).mapValues(String::valueOf), number + "-counts");
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[0]);
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        // Results are due by stream time only; the clock of the driver stands still.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config, Instant.ofEpochMilli(0))) {
            TestInputTopic<String, String> input = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            var outputs = new LinkedHashMap<String, TestOutputTopic<String, String>>();
            for (int number = 1; number < arguments.length; number++) {
                for (String operator : OPERATORS) {
                    String topic = number + "-" + operator;
                    outputs.put(arguments[number] + " " + operator,
                            driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()));
                }
            }
            String[] lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n");
            StringBuilder printed = new StringBuilder();
            for (int record = 0; record < lines.length; record++) {
                String[] parts = lines[record].split(" ");
                input.pipeInput(parts[0], parts[1], Long.parseLong(parts[2]));
                for (var output : outputs.entrySet()) {
                    for (TestRecord<String, String> one : output.getValue().readRecordsToList()) {
                        printed.append(output.getKey()).append(' ').append(record).append(' ').append(one.key()).append(' ')
                                .append(one.value()).append(' ').append(one.timestamp()).append('\n');
                    }
                }
            }
            System.out.print(printed);
        }
    }

    /** The values of a window in the order in which they came. */
    private static KTable<Windowed<String>, String> appended(TimeWindowedKStream<String, String> windowed) {
        return windowed.aggregate(() -> "", (key, value, total) -> total + value + ";", kept(Serdes.String()));
    }

    /** Stores that forget nothing: what they do at the end of their retention depends on their kind. */
    private static <T> Materialized<String, T, WindowStore<Bytes, byte[]>> kept(Serde<T> totals) {
        return Materialized.<String, T, WindowStore<Bytes, byte[]>>with(Serdes.String(), totals)
                .withRetention(Duration.ofDays(1));
    }

    private static void written(KTable<Windowed<String>, String> table, String topic) {
        table.toStream((key, value) -> key.key() + " " + key.window().start() + " " + key.window().end()).to(topic);
    }
}
