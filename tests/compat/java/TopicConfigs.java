import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints each topic config of Kafka, with its type, its default, and the broker's configs that stand in for it;
 *  then, after !, each of the broker's; then, after ?, whether Kafka accepts each of the given pairs. */
public class TopicConfigs {
    public static void main(String[] names) throws Exception {
        var keys = new TreeMap<>(LogConfig.configKeys());
        for (ConfigDef.ConfigKey key : keys.values()) {
            StringBuilder line = new StringBuilder(key.name + "\t" + key.type + "\t");
            line.append(ConfigDef.convertToString(key.defaultValue, key.type)).append('\t');
            for (ConfigSynonym each : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, java.util.List.of()))
                line.append(each.name()).append(' ');
            System.out.println(line);
        }
        var brokers = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        for (ConfigDef.ConfigKey key : brokers.configKeys().values())
            System.out.println("!" + key.name + "\t" + key.type + "\t" + ConfigDef.convertToString(key.defaultValue, key.type));
        for (String pair : names) {
            String[] parts = pair.split("=", 2);
            var properties = new java.util.Properties();
            properties.setProperty(parts[0], parts[1]);
            boolean accepted = true;
            try {
                LogConfig.validate(properties);
            } catch (Exception refused) {
                accepted = false;
            }
            System.out.println("?" + pair + "\t" + accepted);
        }
    }
}
