// Reads "class version hex" lines; answers with the bytes which Apache Kafka's own class writes
// after reading them, or with the reason why it does not. Used by test_against_kafka.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class WireOracle {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        var out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
            out.flush();
        }
    }

    static String answer(String[] words) {
        try {
            Message message = (Message) Class.forName(words[0]).getConstructor().newInstance();
            short version = Short.parseShort(words[1]);
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            message.read(new ByteBufferAccessor(data), version);
            if (data.hasRemaining()) {
                return "error: " + data.remaining() + " bytes left over";
            }
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Throwable problem) {
            return "error: " + problem.toString().replace('\n', ' ');
        }
    }
}
