// kafkajs behind the commands of tests/conformance/node_clients.py:
//   node kafkajs.js '{"servers": …, "topic": …, "group": …, "ca_file": …, "user": …}' <command> [arguments]
const { readFileSync } = require("fs");
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require("kafkajs");
const { codecs } = require("./codecs.js");

const [settings, command, ...args] = process.argv.slice(2);
const { servers, topic, group, ca_file: caFile, user, password } = JSON.parse(settings);
const secure = caFile
  ? { ssl: { ca: [readFileSync(caFile)] }, sasl: { mechanism: "scram-sha-512", username: user, password } }
  : {};
const kafka = new Kafka({ clientId: "kafkajs", brokers: [servers], logLevel: logLevel.NOTHING, ...secure });
const say = (value) => console.log(JSON.stringify(value));
const types = { none: "None", gzip: "GZIP", snappy: "Snappy", lz4: "LZ4", zstd: "ZSTD" };

// kafkajs leaves these three to its users.
function plugIn(found) {
  for (const name of ["snappy", "lz4", "zstd"]) {
    CompressionCodecs[CompressionTypes[types[name]]] = () => ({
      compress: async (encoder) => Buffer.from(found[name].compress(encoder.buffer)),
      decompress: async (buffer) => Buffer.from(found[name].decompress(buffer)),
    });
  }
}

async function withAdmin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

const commands = {
  async produce(codec, idempotent) {
    const values = readFileSync(0, "utf8").split("\n").filter((line) => line);
    const producer = kafka.producer({ idempotent: idempotent === "true" });
    await producer.connect();
    const compression = CompressionTypes[types[codec]];
    const offsets = await producer.send({ topic, acks: -1, compression, messages: values.map((value) => ({ value })) });
    await producer.disconnect();
    say({ batches: offsets.length });
  },

  async member() {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 300 });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assignment: payload.memberAssignment[topic] || [] }));
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => say({ value: message.value.toString() }) });
    await new Promise((done) => process.once("SIGTERM", done));
    await consumer.disconnect();
  },

  committed: () => withAdmin(async (admin) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    say(Object.fromEntries(found.partitions.map((each) => [each.partition, Number(each.offset)])));
  }),

  commit: (offsets) => withAdmin((admin) => admin.setOffsets({
    groupId: group,
    topic,
    partitions: Object.entries(JSON.parse(offsets)).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) })),
  })),

  describe: () => withAdmin(async (admin) => {
    const { groups: [found] } = await admin.describeGroups([group]);
    say({ state: found.state, members: found.members.length });
  }),

  delete: () => withAdmin((admin) => admin.deleteGroups([group])),
};

codecs()
  .then((found) => { plugIn(found); return commands[command](...args); })
  .then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
