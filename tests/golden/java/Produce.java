import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes scenarios with the Java producer. Standard input: {"bootstrap", "scenarios": [{"topic", "config", "batches":
 * [{"end", "records": [{"timestamp_ms", "key", "value", "headers"}]}]}]}, bytes as Latin-1 text. Standard output: for
 * each topic the offset and timestamp the broker acknowledged, record by record. Each batch leaves by its own flush,
 * so it is one batch on disk; "end" ("commit" or "abort") makes it a transaction.
 */
public class Produce {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode task = json.readTree(System.in);
        ObjectNode acknowledged = json.createObjectNode();
        for (JsonNode scenario : task.get("scenarios")) {
            acknowledged.set(scenario.get("topic").asText(), write(task.get("bootstrap").asText(), scenario, json));
        }
        System.out.println(json.writeValueAsString(acknowledged));
    }

    private static ArrayNode write(String bootstrap, JsonNode scenario, ObjectMapper json) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "golden");
        config.put("linger.ms", "5000");
        scenario.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        ByteArraySerializer serializer = new ByteArraySerializer();
        ArrayNode acknowledged = json.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, serializer, serializer)) {
            if (config.containsKey("transactional.id")) {
                producer.initTransactions();
            }
            for (JsonNode batch : scenario.get("batches")) {
                String end = batch.get("end").asText("");
                if (!end.isEmpty()) {
                    producer.beginTransaction();
                }
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode record : batch.get("records")) {
                    sent.add(producer.send(record(scenario.get("topic").asText(), record)));
                }
                producer.flush();
                for (Future<RecordMetadata> each : sent) {
                    acknowledged.addArray().add(each.get().offset()).add(each.get().timestamp());
                }
                if (end.equals("commit")) {
                    producer.commitTransaction();
                } else if (end.equals("abort")) {
                    producer.abortTransaction();
                }
            }
        }
        return acknowledged;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode given) {
        long timestampMs = given.get("timestamp_ms").asLong();
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, 0, timestampMs, bytes(given.get("key")), bytes(given.get("value")));
        for (JsonNode header : given.get("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.ISO_8859_1);
    }
}
