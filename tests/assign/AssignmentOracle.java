// Apache Kafka's own assignors behind JSON lines: one scenario per line in, one answer per line out.
//
//   {"assignor", "topics", "members"}            the form of src/shoal/assign/scenario.py
//   ... with "server": true                      KIP-848: the assignor of the group coordinator
//   {"bench": assignor, "case", ...}             times of repeated runs, see benchmarks/assign.py
//   {"benchServer": "uniform", ...}              the same, see benchmarks/assign_server.py
//
// It is compiled against the published jars, once, by tests/assign/oracle.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.zip.CRC32;

public class AssignmentOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private static JsonNode answer(JsonNode scenario) {
        try {
            if (scenario.has("bench"))
                return bench(scenario);
            if (scenario.has("benchServer"))
                return benchServer(scenario);
            return scenario.path("server").asBoolean() ? server(scenario) : client(scenario);
        } catch (Throwable failure) {
            return JSON.createObjectNode().put("error", String.valueOf(failure));
        }
    }

    // ------------------------------------------------------------------ the client's assignors

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static JsonNode client(JsonNode scenario) {
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : scenario.get("members"))
            members.put(member.get("id").asText(), subscription(member));
        Map<String, Assignment> result = assignor(scenario.get("assignor").asText())
            .assign(cluster(scenario.get("topics")), new GroupSubscription(members))
            .groupAssignment();
        ObjectNode given = JSON.createObjectNode();
        result.forEach((member, assignment) -> {
            ArrayNode pairs = given.putArray(member);
            for (TopicPartition tp : assignment.partitions())
                pairs.addArray().add(tp.topic()).add(tp.partition());
        });
        ObjectNode answer = JSON.createObjectNode();
        answer.set("assignment", given);
        return answer;
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        Subscription subscription = new Subscription(
            topics,
            userData(member),
            partitions(member.get("owned")),
            member.path("generation").asInt(-1),
            Optional.ofNullable(member.hasNonNull("rack") ? member.get("rack").asText() : null));
        if (member.hasNonNull("instance"))
            subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        return subscription;
    }

    private static ByteBuffer userData(JsonNode member) {
        if (member.hasNonNull("userData")) {
            String hex = member.get("userData").asText();
            ByteBuffer bytes = ByteBuffer.allocate(hex.length() / 2);
            for (int i = 0; i < hex.length(); i += 2)
                bytes.put((byte) Integer.parseInt(hex.substring(i, i + 2), 16));
            bytes.flip();
            return bytes;
        }
        if (member.hasNonNull("sticky")) {
            StickyAssignor sticky = new StickyAssignor();
            remember(sticky, partitions(member.get("sticky").get("owned")), member.get("sticky").get("generation").asInt());
            return sticky.subscriptionUserData(Collections.emptySet());
        }
        if (member.hasNonNull("coopGen")) {
            CooperativeStickyAssignor sticky = new CooperativeStickyAssignor();
            remember(sticky, Collections.emptyList(), member.get("coopGen").asInt());
            return sticky.subscriptionUserData(Collections.emptySet());
        }
        return null;
    }

    private static void remember(ConsumerPartitionAssignor assignor, List<TopicPartition> owned, int generation) {
        assignor.onAssignment(
            new Assignment(owned), new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
    }

    private static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> found = new ArrayList<>();
        if (pairs != null)
            pairs.forEach(pair -> found.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
        return found;
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new LinkedHashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (Iterator<Map.Entry<String, JsonNode>> each = topics.fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> topic = each.next();
            JsonNode value = topic.getValue();
            int count = value.isInt() ? value.asInt() : value.size();
            for (int partition = 0; partition < count; partition++) {
                List<Node> replicas = new ArrayList<>();
                if (value.isArray())
                    for (JsonNode rack : value.get(partition))
                        replicas.add(nodes.computeIfAbsent(
                            String.valueOf(rack.isNull() ? null : "r" + rack.asText()),
                            key -> new Node(nodes.size(), "host", 9092, rack.isNull() ? null : rack.asText())));
                Node[] array = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic.getKey(), partition, Node.noNode(), array, array));
            }
        }
        return new Cluster("cluster", nodes.values(), infos, Collections.emptySet(), Collections.emptySet());
    }

    // ------------------------------------------------------------------ the coordinator's assignors

    private static JsonNode server(JsonNode scenario) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> each = scenario.get("topics").fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> topic = each.next();
            // The name of a topic is its id, as 32 hexadecimal digits.
            Uuid id = new Uuid(Long.parseUnsignedLong(topic.getKey().substring(0, 16), 16),
                Long.parseUnsignedLong(topic.getKey().substring(16), 16));
            ids.put(topic.getKey(), id);
            names.put(id, topic.getKey());
            counts.put(id, topic.getValue().asInt());
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode member : scenario.get("members")) {
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(ids.get(topic.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            for (TopicPartition tp : partitions(member.get("owned"))) {
                owned.putIfAbsent(ids.get(tp.topic()), new HashSet<>());
                owned.get(ids.get(tp.topic())).add(tp.partition());
                owners.computeIfAbsent(ids.get(tp.topic()), key -> new HashMap<>())
                    .put(tp.partition(), member.get("id").asText());
            }
            members.put(member.get("id").asText(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.hasNonNull("instance") ? member.get("instance").asText() : null),
                topics,
                new org.apache.kafka.coordinator.group.modern.Assignment(owned)));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupSpecImpl spec = new GroupSpecImpl(members, type, owners);
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            @Override public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
            @Override public Set<String> racksForPartition(Uuid id, int partition) { return Collections.emptySet(); }
        };
        GroupAssignment result = scenario.get("assignor").asText().equals("uniform")
            ? new UniformAssignor().assign(spec, topics)
            : new org.apache.kafka.coordinator.group.assignor.RangeAssignor().assign(spec, topics);
        ObjectNode given = JSON.createObjectNode();
        for (Map.Entry<String, MemberAssignment> entry : result.members().entrySet()) {
            ObjectNode byTopic = given.putObject(entry.getKey());
            entry.getValue().partitions().forEach((id, numbers) -> {
                ArrayNode list = byTopic.putArray(names.get(id));
                new TreeSet<>(numbers).forEach(list::add);
            });
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("assignment", given);
        return answer;
    }

    // ------------------------------------------------------------------ times

    // CPU of this thread: what other processes do does not count, nor does Java's garbage collector.
    private static long now() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static JsonNode bench(JsonNode request) {
        String name = request.get("bench").asText();
        int topicCount = request.get("topics").asInt();
        int partitionCount = request.get("partitions").asInt();
        Cluster cluster = wholeCluster(topicCount, partitionCount);
        List<String> topics = new ArrayList<>();
        for (int i = 0; i < topicCount; i++)
            topics.add(topicName(i));
        List<JsonNode> steps = new ArrayList<>();
        request.get("steps").forEach(steps::add);
        ArrayNode times = JSON.createArrayNode();
        ArrayNode encoded = JSON.createArrayNode();
        long checksum = 0;
        Map<String, List<TopicPartition>> owned = new HashMap<>();
        for (int step = 0; step < steps.size(); step++) {
            Map<String, Subscription> members = new HashMap<>();
            for (JsonNode one : steps.get(step).get("members"))
                members.put(one.get(0).asText(),
                    benchMember(name, one, topics, owned.get(one.get(0).asText()), step));
            boolean isLast = step == steps.size() - 1;
            // The steps before the last one only make the ownership it starts from.
            for (int run = 0; run < (isLast ? request.get("runs").asInt() : 1); run++) {
                for (Subscription one : members.values())
                    if (one.userData() != null)
                        one.userData().rewind();
                ConsumerPartitionAssignor assignor = assignor(name);
                System.gc();
                long start = now();
                Map<String, Assignment> result =
                    assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
                long middle = now();
                if (isLast) {
                    times.add((middle - start) / 1e9);
                    for (Assignment assignment : result.values())
                        ConsumerProtocol.serializeAssignment(assignment);
                    encoded.add((now() - middle) / 1e9);
                    if (run == 0)
                        checksum = checksum(result);
                } else {
                    owned.clear();
                    result.forEach((member, assignment) -> owned.put(member, assignment.partitions()));
                }
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("seconds", times);
        answer.set("encode_seconds", encoded);
        answer.put("checksum", checksum);
        return answer;
    }

    // Everybody wants everything. With "joins" one more comes to a group that has its target.
    private static JsonNode benchServer(JsonNode request) {
        int topicCount = request.get("topics").asInt();
        int partitionCount = request.get("partitions").asInt();
        int memberCount = request.get("members").asInt();
        Set<Uuid> topics = new HashSet<>();
        for (int i = 1; i <= topicCount; i++)
            topics.add(new Uuid(0, i));
        SubscribedTopicDescriber described = new SubscribedTopicDescriber() {
            @Override public int numPartitions(Uuid id) { return topics.contains(id) ? partitionCount : -1; }
            @Override public Set<String> racksForPartition(Uuid id, int partition) { return Collections.emptySet(); }
        };
        Map<String, Map<Uuid, Set<Integer>>> owned = new HashMap<>();
        if (request.get("joins").asBoolean()) {
            GroupAssignment before = new UniformAssignor().assign(
                uniformSpec(memberCount - 1, topics, owned), described);
            // Entered one by one, as the coordinator does when it reads its records: the order in
            // which a copied map is walked is another one.
            before.members().forEach((member, given) -> {
                owned.put(member, new HashMap<>());
                new TreeSet<>(given.partitions().keySet()).forEach(id -> {
                    Set<Integer> numbers = new HashSet<>();
                    new TreeSet<>(given.partitions().get(id)).forEach(numbers::add);
                    owned.get(member).put(id, numbers);
                });
            });
        }
        GroupSpecImpl spec = uniformSpec(memberCount, topics, owned);
        ArrayNode times = JSON.createArrayNode();
        GroupAssignment result = null;
        for (int run = 0; run < request.get("runs").asInt(); run++) {
            System.gc();
            long start = now();
            result = new UniformAssignor().assign(spec, described);
            times.add((now() - start) / 1e9);
        }
        CRC32 crc = new CRC32();
        for (String member : new TreeSet<>(result.members().keySet())) {
            crc.update(member.getBytes(StandardCharsets.UTF_8));
            Map<Uuid, Set<Integer>> given = result.members().get(member).partitions();
            for (int i = 1; i <= topicCount; i++)
                for (int number : new TreeSet<>(given.getOrDefault(new Uuid(0, i), Collections.emptySet())))
                    crc.update((i + "-" + number + ";").getBytes(StandardCharsets.UTF_8));
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("seconds", times);
        answer.put("checksum", crc.getValue());
        return answer;
    }

    private static GroupSpecImpl uniformSpec(
        int count, Set<Uuid> topics, Map<String, Map<Uuid, Set<Integer>>> owned) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int i = 0; i < count; i++) {
            String member = String.format("consumer-%05d", i);
            Map<Uuid, Set<Integer>> mine = owned.getOrDefault(member, Map.of());
            mine.forEach((id, numbers) -> numbers.forEach(number ->
                owners.computeIfAbsent(id, key -> new HashMap<>()).put(number, member)));
            members.put(member, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(),
                topics, new org.apache.kafka.coordinator.group.modern.Assignment(mine)));
        }
        return new GroupSpecImpl(members, SubscriptionType.HOMOGENEOUS, owners);
    }

    private static String topicName(int index) {
        return String.format("topic-%05d", index);
    }

    private static Cluster wholeCluster(int topics, int partitions) {
        List<PartitionInfo> infos = new ArrayList<>();
        Node[] nobody = new Node[0];
        for (int topic = 0; topic < topics; topic++)
            for (int partition = 0; partition < partitions; partition++)
                infos.add(new PartitionInfo(topicName(topic), partition, Node.noNode(), nobody, nobody));
        return new Cluster("cluster", Collections.emptyList(), infos, Collections.emptySet(), Collections.emptySet());
    }

    private static Subscription benchMember(
        String name, JsonNode one, List<String> topics, List<TopicPartition> owned, int generation) {
        // [id] subscribes to everything, [id, start, end] to a part.
        List<String> wanted = one.size() == 1 ? topics : topics.subList(one.get(1).asInt(), one.get(2).asInt());
        ByteBuffer userData = null;
        List<TopicPartition> kept = owned == null ? Collections.emptyList() : owned;
        if (owned != null && name.equals("sticky")) {
            StickyAssignor sticky = new StickyAssignor();
            remember(sticky, owned, generation);
            userData = sticky.subscriptionUserData(Collections.emptySet());
            kept = Collections.emptyList();
        }
        if (name.equals("range") || name.equals("roundrobin"))
            kept = Collections.emptyList();
        return new Subscription(wanted, userData, kept, owned == null ? -1 : generation, Optional.empty());
    }

    private static long checksum(Map<String, Assignment> result) {
        CRC32 crc = new CRC32();
        for (String member : new TreeSet<>(result.keySet())) {
            crc.update(member.getBytes(StandardCharsets.UTF_8));
            for (TopicPartition tp : result.get(member).partitions())
                crc.update((tp.topic() + "-" + tp.partition() + ";").getBytes(StandardCharsets.UTF_8));
        }
        return crc.getValue();
    }
}
