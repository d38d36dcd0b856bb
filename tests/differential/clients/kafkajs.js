// Every admin, metadata and group call of kafkajs, with its defaults; one line of JSON.
//   node kafkajs.js 127.0.0.1:9092
const { Kafka, logLevel, ConfigResourceTypes, AclResourceTypes, AclOperationTypes, AclPermissionTypes, ResourcePatternTypes } =
  require("kafkajs");

const [servers] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [servers], logLevel: logLevel.NOTHING });
const topic = "kafkajs";
const groupId = "kafkajs-group";
const outcomes = {};
const used = new Set();

// The same object; the names of the methods that are taken from it are noted.
const noted = (object) => new Proxy(object, { get: (from, name) => (used.add(name), from[name]) });

// Fields that come as bytes or as big numbers are shown as text.
const plain = (_, value) =>
  value && value.type === "Buffer" ? Buffer.from(value.data).toString("hex") : typeof value === "bigint" ? String(value) : value;

async function called(name, call) {
  try {
    const result = await call();
    outcomes[name] = result === undefined ? null : result;
    return result;
  } catch (error) {
    outcomes[name] = { error: error.name, code: error.type || (error.errors || []).map((each) => each.type).join(" ") };
    return undefined;
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function groups(admin) {
  const consumer = noted(kafka.consumer({ groupId }));
  const seen = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => seen.push([partition, message.offset, message.value.toString()]),
  });
  for (let left = 150; seen.length < 2 && left; left--) await pause(200);
  outcomes.consumed = seen;
  await called("describeGroup", () => consumer.describeGroup());
  await called("commitOffsets", () => consumer.commitOffsets([{ topic, partition: 0, offset: "2" }]));
  await called("pause", () => consumer.pause([{ topic }]));
  await called("paused", () => consumer.paused());
  await called("resume", () => consumer.resume([{ topic }]));
  await called("seek", () => consumer.seek({ topic, partition: 0, offset: "2" }));
  for (let left = 150; seen.length < 3 && left; left--) await pause(200);
  outcomes["consumed after a seek"] = seen.slice(2).map((each) => each[1]);
  await called("describeGroups", () => admin.describeGroups([groupId]));
  await called("deleteGroups in use", () => admin.deleteGroups([groupId]));
  await called("stop", () => consumer.stop());
  await consumer.disconnect();
  outcomes["methods of a consumer that were not called"] = Object.keys(consumer).filter((each) => !used.has(each));
  await called("listGroups", async () => (await admin.listGroups()).groups.filter((each) => each.groupId === groupId));
  await called("fetchOffsets", () => admin.fetchOffsets({ groupId, topics: [topic] }));
  await called("setOffsets", () => admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "1" }] }));
  await called("resetOffsets", () => admin.resetOffsets({ groupId, topic, earliest: true }));
  await called("deleteGroups", () => admin.deleteGroups([groupId]));
  await called("deleteGroups again", () => admin.deleteGroups([groupId]));
}

async function main() {
  const admin = noted(kafka.admin());
  await admin.connect();
  await called("createTopics", () => admin.createTopics({ topics: [{ topic, numPartitions: 2 }] }));
  await called("createTopics again", () => admin.createTopics({ topics: [{ topic, numPartitions: 2 }] }));
  await called("createPartitions", () => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }));
  await pause(500);
  const producer = kafka.producer();
  await producer.connect();
  await called("send", () => producer.send({ topic, messages: [1, 2, 3].map((each) => ({ value: `v${each}`, partition: 0 })) }));
  await producer.disconnect();
  await called("listTopics", async () => (await admin.listTopics()).includes(topic));
  await called("fetchTopicMetadata", () => admin.fetchTopicMetadata({ topics: [topic] }));
  await called("fetchTopicMetadata of an unknown topic", () => admin.fetchTopicMetadata({ topics: ["kafkajs-unknown", "a b"] }));
  await called("fetchTopicOffsets", () => admin.fetchTopicOffsets(topic));
  await called("fetchTopicOffsetsByTimestamp", () => admin.fetchTopicOffsetsByTimestamp(topic, 1));
  await called("describeCluster", async () => ({ ...(await admin.describeCluster()), clusterId: "(id)" }));
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  const entries = [{ name: "retention.ms", value: "9000000" }];
  await called("alterConfigs", () => admin.alterConfigs({ resources: [{ ...resource, configEntries: entries }] }));
  await pause(300);
  await called("describeConfigs", async () => {
    const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: true });
    for (const each of resources) each.configEntries.sort((a, b) => (a.configName < b.configName ? -1 : 1));
    return resources;
  });
  await called("alterPartitionReassignments", () =>
    admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [1] }] }] }));
  await called("listPartitionReassignments", () =>
    admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] }));
  await called("deleteTopicRecords", () => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] }));
  await groups(admin);
  const acl = {
    resourceType: AclResourceTypes.TOPIC,
    resourceName: topic,
    resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: "User:u",
    host: "*",
    operation: AclOperationTypes.READ,
    permissionType: AclPermissionTypes.ALLOW,
  };
  await called("createAcls", () => admin.createAcls({ acl: [acl] }));
  await called("describeAcls", () => admin.describeAcls(acl));
  await called("deleteAcls", () => admin.deleteAcls({ filters: [acl] }));
  await called("deleteTopics", () => admin.deleteTopics({ topics: [topic] }));
  await called("deleteTopics of an unknown topic", () => admin.deleteTopics({ topics: ["kafkajs-unknown-too"] }));
  await admin.disconnect();
  outcomes["methods of an admin that were not called"] = Object.keys(admin).filter((each) => !used.has(each));
  console.log(JSON.stringify(outcomes, plain));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
