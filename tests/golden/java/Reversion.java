import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Asks the same things in every version. Argument: the port to talk to. Standard input: request frames in Base64, one a
 * line, as clients sent them. Each is read by Kafka's own classes, written again in every version of its API that can
 * say it, and sent; the answer is awaited for a moment and dropped, for whoever listens in between to keep.
 */
public class Reversion {
    private static final int PATIENCE_MS = 1500;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        int asked = 0;
        int answered = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteBuffer frame = ByteBuffer.wrap(Base64.getDecoder().decode(line));
            ApiMessageType api = ApiMessageType.fromApiKey(frame.getShort(0));
            short spoken = frame.getShort(2);
            RequestHeaderData header = new RequestHeaderData();
            header.read(new ByteBufferAccessor(frame), api.requestHeaderVersion(spoken));
            ApiMessage request = api.newRequest();
            request.read(new ByteBufferAccessor(frame), spoken);
            for (short version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(true); version++) {
                byte[] again = write(api, version, request);
                if (version != spoken && again != null) {
                    asked++;
                    answered += ask(port, again) ? 1 : 0;
                }
            }
        }
        System.out.println(asked + " asked, " + answered + " answered");
    }

    private static byte[] write(ApiMessageType api, short version, ApiMessage request) {
        RequestHeaderData header = new RequestHeaderData()
            .setRequestApiKey(api.apiKey())
            .setRequestApiVersion(version)
            .setCorrelationId(7)
            .setClientId("golden");
        try {
            byte[] start = bytes(header, api.requestHeaderVersion(version));
            byte[] body = bytes(request, version);
            return ByteBuffer.allocate(start.length + body.length).put(start).put(body).array();
        } catch (RuntimeException inexpressible) {
            return null;
        }
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static boolean ask(int port, byte[] request) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(PATIENCE_MS);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(request.length);
            out.write(request);
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            in.readNBytes(in.readInt());
            return true;
        } catch (IOException unanswered) {
            return false;
        }
    }
}
