// Writes the records of test_java.py with Apache Kafka's own classes: one batch per codec and
// timestamp type, one of them transactional, and an abort marker. Usage: WriteBatches <file>
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Utils;

public class WriteBatches {
    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static SimpleRecord record(int i) {
        byte[] key = i % 7 == 3 ? null : bytes("key-" + i);
        byte[] value = i % 11 == 5 ? null : bytes(("value-" + i + " ").repeat(1 + i % 90));
        Header[] headers = i % 5 != 2 ? new Header[0] : new Header[] {
            new RecordHeader("header", bytes("" + i)),
            new RecordHeader("ümlaut", (byte[]) null),
            new RecordHeader("", bytes(""))};
        return new SimpleRecord(1_700_000_000_000L + 7 * i - (i % 3) * 50, key, value, headers);
    }

    public static void main(String[] arguments) throws Exception {
        try (FileOutputStream out = new FileOutputStream(arguments[0])) {
            long offset = 0;
            for (CompressionType codec : CompressionType.values()) {
                for (TimestampType type : new TimestampType[] {
                        TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    boolean transactional = type == TimestampType.LOG_APPEND_TIME;
                    MemoryRecordsBuilder builder = MemoryRecords.builder(
                        ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2,
                        Compression.of(codec).build(), type, offset, 1_800_000_000_000L,
                        transactional ? 42L : -1L, (short) (transactional ? 3 : -1),
                        transactional ? 7 : -1, transactional, 5);
                    for (int i = 0; i < 120; i++) builder.append(record(i));
                    offset += 120;
                    out.write(Utils.toArray(builder.build().buffer()));
                }
            }
            MemoryRecords marker = MemoryRecords.withEndTransactionMarker(
                offset, 1_800_000_000_000L, 5, 42L, (short) 3,
                new EndTransactionMarker(ControlRecordType.ABORT, 9));
            out.write(Utils.toArray(marker.buffer()));
        }
    }
}
