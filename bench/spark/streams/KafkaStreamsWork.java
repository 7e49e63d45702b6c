import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.TimestampExtractor;

/**
 * Does the work of each line of standard input with Kafka Streams, and prints a line of JSON about it. A line has the fields
 * work, application, bootstrap servers, guarantee, threads, state directory, topics (separated by commas), output topic, and
 * the number of records after which all is done: those of the input of a windowed count, those of the output of a
 * stream-table join, and rows with their last left value of a foreign-key join.
 *
 * Time runs from when the first record is taken from a buffer of the consumer to when the last one that was written, changelogs
 * included, is acknowledged.
 */
public final class KafkaStreamsWork {
    private static final int FOREIGN_KEY_BYTES = 8;
    private static final byte LAST = 'L';
    private static final long GIVE_UP_NS = 300_000_000_000L;
    private static final LongAdder done = new LongAdder();
    private static volatile long begunNs;
    private static volatile long acknowledgedNs;
    private static volatile Throwable failure;

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            String answer;
            try {
                answer = work(request.split(" "));
            } catch (Exception error) {
                error.printStackTrace();
                answer = "{\"error\": \"" + error.toString().replaceAll("[\"\\\\\\n]", "'") + "\"}";
            }
            System.out.println(answer);
        }
    }

    private static String work(String[] fields) throws Exception {
        String[] topics = fields[6].split(",");
        StreamsBuilder builder = new StreamsBuilder();
        switch (fields[0]) {
            case "windowed-count" -> windowedCount(builder, topics, fields[7]);
            case "stream-table" -> streamTable(builder, topics, fields[7]);
            case "foreign-key" -> foreignKey(builder, topics, fields[7]);
            default -> throw new IllegalArgumentException("unknown work " + fields[0]);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, fields[1]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, fields[2]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, fields[3]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, fields[4]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, fields[5]);
        config.put(StreamsConfig.producerPrefix("interceptor.classes"), Acknowledgements.class.getName());
        long wanted = Long.parseLong(fields[8]);
        done.reset();
        begunNs = acknowledgedNs = 0;
        failure = null;
        long startedNs = System.nanoTime();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.setUncaughtExceptionHandler(error -> {
                failure = error;
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            while (done.sum() < wanted && failure == null) {
                if (System.nanoTime() - startedNs > GIVE_UP_NS) {
                    throw new IllegalStateException(done.sum() + " of " + wanted + " records were done in time");
                }
                Thread.sleep(2);
            }
            if (failure != null) {
                throw new IllegalStateException(failure);
            }
            // Closing writes what is in caches, and commits.
            streams.close(Duration.ofSeconds(60));
            long closedNs = System.nanoTime();
            long workNs = acknowledgedNs - begunNs;
            String answer = "{\"seconds\": %.6f, \"once_s\": %.6f, \"to_begin_s\": %.6f, \"done\": %d}".formatted(
                    workNs / 1e9, (closedNs - startedNs - workNs) / 1e9, (begunNs - startedNs) / 1e9, done.sum());
            streams.cleanUp();
            return answer;
        } finally {
            deleteInternalTopics(fields[1], fields[2]);
        }
    }

    private static void windowedCount(StreamsBuilder builder, String[] topics, String output) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofMinutes(1));
        KStream<Bytes, byte[]> records = builder.stream(topics[0], consumed());
        records.peek((key, value) -> done.increment())
                .groupByKey()
                .windowedBy(windows)
                .count()
                .toStream((window, count) -> concatenated(window.key(), text(window.window().start())))
                .mapValues(KafkaStreamsWork::text)
                .to(output, produced());
    }

    private static void streamTable(StreamsBuilder builder, String[] topics, String output) {
        KStream<Bytes, byte[]> stream = builder.stream(topics[0], consumed());
        KTable<Bytes, byte[]> table = builder.table(topics[1], consumed());
        stream.join(table, KafkaStreamsWork::both).peek((key, value) -> done.increment()).to(output, produced());
    }

    private static void foreignKey(StreamsBuilder builder, String[] topics, String output) {
        KTable<Bytes, byte[]> left = builder.table(topics[0], consumed());
        KTable<Bytes, byte[]> right = builder.table(topics[1], consumed());
        left.join(right, value -> Bytes.wrap(Arrays.copyOf(value, FOREIGN_KEY_BYTES)), KafkaStreamsWork::both)
                .toStream()
                .peek((key, value) -> {
                    if (value != null && value[FOREIGN_KEY_BYTES] == LAST) {
                        done.increment();
                    }
                })
                .to(output, produced());
    }

    private static Consumed<Bytes, byte[]> consumed() {
        return Consumed.with(Serdes.Bytes(), Serdes.ByteArray()).withTimestampExtractor(new Beginning());
    }

    private static Produced<Bytes, byte[]> produced() {
        return Produced.with(Serdes.Bytes(), Serdes.ByteArray());
    }

    private static byte[] both(byte[] left, byte[] right) {
        byte[] both = Arrays.copyOf(left, left.length + right.length);
        System.arraycopy(right, 0, both, left.length, right.length);
        return both;
    }

    private static Bytes concatenated(Bytes key, byte[] more) {
        return Bytes.wrap(both(key.get(), more));
    }

    private static byte[] text(long number) {
        return Long.toString(number).getBytes(StandardCharsets.US_ASCII);
    }

    private static void deleteInternalTopics(String application, String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<String> internal = admin.listTopics().names().get().stream()
                    .filter(name -> name.startsWith(application + "-"))
                    .toList();
            admin.deleteTopics(internal).all().get();
        }
    }

    /** Takes the timestamps of records as they are, and knows when the first one came. */
    public static final class Beginning implements TimestampExtractor {
        @Override
        public long extract(ConsumerRecord<Object, Object> record, long partitionTime) {
            if (begunNs == 0) {
                begunNs = System.nanoTime();
            }
            return record.timestamp();
        }
    }

    public static final class Acknowledgements implements ProducerInterceptor<byte[], byte[]> {
        @Override
        public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
            return record;
        }

        @Override
        public void onAcknowledgement(RecordMetadata metadata, Exception exception) {
            acknowledgedNs = System.nanoTime();
        }

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }
}
