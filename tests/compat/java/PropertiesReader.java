import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.TreeMap;

/** Reads properties files from standard input, with a zero between them, and prints what each sets: keys and values end
 *  with a unit separator, files with a zero; one that cannot be read is a record separator. */
public class PropertiesReader {
    public static void main(String[] ignored) throws Exception {
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        StringBuilder output = new StringBuilder();
        for (String text : input.split("\0", -1)) {
            Properties properties = new Properties();
            try {
                properties.load(new StringReader(text));
                new TreeMap<>(properties).forEach((key, value) -> output.append(key).append('\u001f').append(value).append('\u001f'));
            } catch (IllegalArgumentException refused) {
                output.append('\u001e');
            }
            output.append('\0');
        }
        System.out.write(output.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
