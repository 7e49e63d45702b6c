import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/**
 * Tells the partition that Kafka's own producer chooses for each key. Argument: the number of partitions. Reads keys,
 * each after its length in four bytes; writes a partition, in four bytes, for each.
 */
public class ClientPartitions {
    public static void main(String[] arguments) throws IOException {
        int partitions = Integer.parseInt(arguments[0]);
        DataInputStream keys = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream chosen = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int length;
            try {
                length = keys.readInt();
            } catch (EOFException end) {
                break;
            }
            byte[] key = new byte[length];
            keys.readFully(key);
            chosen.writeInt(BuiltInPartitioner.partitionForKey(key, partitions));
        }
        chosen.flush();
    }
}
