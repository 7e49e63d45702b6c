import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;

/** Prints each broker config of Kafka: name, type, default, whether it is internal, and how it can be updated.
 *  Then, for each line of standard input that is one pair, after ?, whether that key accepts that value;
 *  and for each that has several, with tabs between, after +, whether a broker would start with all of them. */
public class BrokerConfigs {
    public static void main(String[] ignored) throws Exception {
        Class<?> broker = Class.forName("kafka.server.KafkaConfig");
        var keys = ((ConfigDef) broker.getMethod("configDef").invoke(null)).configKeys();
        Object dynamic = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        var modes = (Map<?, ?>) dynamic.getClass().getMethod("dynamicConfigUpdateModes").invoke(dynamic);
        for (ConfigDef.ConfigKey key : keys.values())
            System.out.println(String.join("\t", key.name, key.type.name(),
                String.valueOf(ConfigDef.convertToString(key.defaultValue, key.type)),
                String.valueOf(key.internalConfig), String.valueOf(modes.get(key.name))));

        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            boolean single = line.indexOf('\t') < 0;
            boolean accepted = true;
            try {
                if (single) {
                    String[] pair = line.split("=", 2);
                    ConfigDef.ConfigKey key = keys.get(pair[0]);
                    Object value = ConfigDef.parseType(key.name, pair[1], key.type);
                    if (key.validator != null)
                        key.validator.ensureValid(key.name, value);
                } else {
                    Properties properties = new Properties();
                    for (String each : line.split("\t")) {
                        String[] pair = each.split("=", 2);
                        properties.setProperty(pair[0], pair[1]);
                    }
                    broker.getMethod("fromProps", Properties.class).invoke(null, properties);
                }
            } catch (Exception refused) {
                accepted = false;
            }
            System.out.println((single ? "?" : "+") + line + "\u001f" + accepted);
        }
    }
}
