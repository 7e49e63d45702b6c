import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/** Reads values in hex, each with the name of its serializer; prints what Kafka reads there, and the bytes it makes of it. */
public class Serializers {
    private static final String PACKAGE = "org.apache.kafka.common.serialization.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        HexFormat hex = HexFormat.of();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            Object value = reader(words[0]).deserialize("orders", hex.parseHex(words[1]));
            byte[] written = writer(words[0]).serialize("orders", value);
            byte[] shown = value instanceof byte[] ? (byte[]) value : value.toString().getBytes(StandardCharsets.UTF_16BE);
            System.out.println(hex.formatHex(written) + " " + hex.formatHex(shown));
        }
    }

    private static Deserializer<?> reader(String name) throws Exception {
        return (Deserializer<?>) Class.forName(PACKAGE + name + "Deserializer").getConstructor().newInstance();
    }

    @SuppressWarnings("unchecked")
    private static Serializer<Object> writer(String name) throws Exception {
        return (Serializer<Object>) Class.forName(PACKAGE + name + "Serializer").getConstructor().newInstance();
    }
}
