import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/** Sends, reads and commits, then prints what Kafka's clients say of it: kind, group, name, tags, value. */
public class ClientMetrics {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], protocol = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        Properties shared = new Properties();
        shared.put("bootstrap.servers", servers);
        shared.put("client.id", "java");
        Properties sending = new Properties();
        sending.putAll(shared);
        sending.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        sending.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        sending.put("transactional.id", "java-" + topic);
        sending.put("linger.ms", "5000");
        sending.put("batch.size", "1000000");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(sending);
        producer.initTransactions();
        producer.beginTransaction();
        for (int number = 0; number < count; number++)
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[100]));
        producer.flush();
        producer.commitTransaction();
        // At once, here and below: averages are of the last half minute, and a busy machine may take that long.
        print("producer", producer.metrics());
        Properties reading = new Properties();
        reading.putAll(shared);
        reading.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        reading.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        reading.put("group.id", "java-" + topic);
        reading.put("group.protocol", protocol);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("max.poll.records", "100");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading);
        consumer.subscribe(List.of(topic));
        int read = 0;
        for (long end = System.currentTimeMillis() + 60000; read < count && System.currentTimeMillis() < end;)
            read += consumer.poll(Duration.ofMillis(500)).count();
        consumer.commitSync();
        consumer.poll(Duration.ofMillis(100));
        print("consumer", consumer.metrics());
        Admin admin = Admin.create(shared);
        admin.describeCluster().nodes().get();
        print("admin", admin.metrics());
        consumer.close();
        producer.close();
        admin.close();
    }

    private static void print(String kind, Map<MetricName, ? extends Metric> metrics) {
        for (Map.Entry<MetricName, ? extends Metric> one : metrics.entrySet())
            System.out.println(String.join("\t", kind, one.getKey().group(), one.getKey().name(),
                new TreeMap<>(one.getKey().tags()).toString(), String.valueOf(one.getValue().metricValue())));
    }
}
