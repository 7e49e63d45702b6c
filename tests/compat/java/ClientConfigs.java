import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints each config of Kafka's clients: which client's, name, type, default.
 *  Then, for each line of standard input (client, tab, key=value), whether that key accepts that value. */
public class ClientConfigs {
    public static void main(String[] ignored) throws Exception {
        Map<String, ConfigDef> kinds = new HashMap<>();
        kinds.put("producer", ProducerConfig.configDef());
        kinds.put("consumer", ConsumerConfig.configDef());
        kinds.put("admin", AdminClientConfig.configDef());
        kinds.forEach((kind, keys) -> keys.configKeys().values().forEach(key ->
            System.out.println(String.join("\t", kind, key.name, key.type.name(), key.hasDefault()
                ? String.valueOf(ConfigDef.convertToString(key.defaultValue, key.type)) : "required"))));

        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", 2);
            String[] pair = parts[1].split("=", 2);
            ConfigDef.ConfigKey key = kinds.get(parts[0]).configKeys().get(pair[0]);
            boolean accepted = true;
            try {
                Object value = ConfigDef.parseType(key.name, pair[1], key.type);
                if (key.validator != null)
                    key.validator.ensureValid(key.name, value);
            } catch (Exception refused) {
                accepted = false;
            }
            System.out.println("?" + line + "\u001f" + accepted);
        }
    }
}
