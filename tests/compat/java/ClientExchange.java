import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes and reads records as it is told by lines of words. `write TOPIC CODEC COUNT` is followed by that many lines of
 * records; `read TOPIC COUNT` is answered by that many, from the beginning of partition 0. A record is its time, key, value and
 * headers: bytes in hex, `-` for null, a header as `name=value`. Argument: the broker's address.
 */
public class ClientExchange {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("write")) {
                write(arguments[0], words[1], words[2], Integer.parseInt(words[3]), lines);
            } else {
                read(arguments[0], words[1], Integer.parseInt(words[2]));
            }
        }
    }

    private static void write(String bootstrap, String topic, String codec, int count, BufferedReader lines) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", "100");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
            for (int index = 0; index < count; index++) {
                sent.add(producer.send(record(topic, lines.readLine())));
            }
            producer.flush();
            for (var each : sent) {
                each.get();
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String line) throws IOException {
        String[] words = line.split(" ", -1);
        var record = new ProducerRecord<>(topic, 0, Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]));
        for (int index = 3; index < words.length; index++) {
            String[] header = words[index].split("=", -1);
            record.headers().add(new String(bytes(header[0]), StandardCharsets.UTF_8), bytes(header[1]));
        }
        return record;
    }

    private static void read(String bootstrap, String topic, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            int seen = 0;
            while (seen < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + seen + " records of " + count + " came");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(line(record));
                    seen++;
                }
            }
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder();
        line.append(record.timestamp()).append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers()) {
            String name = HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8));
            line.append(' ').append(name).append('=').append(hex(header.value()));
        }
        return line.toString();
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : HEX.formatHex(bytes);
    }
}
