// @platformatic/kafka behind the commands of tests/conformance/node_clients.py (see kafkajs.js).
const { readFileSync } = require("fs");
const zlib = require("zlib");
const { codecs } = require("./codecs.js");

// The client wants Node 22; this is all it needs of it.
Promise.withResolvers ??= function withResolvers() {
  const result = {};
  result.promise = new Promise((resolve, reject) => Object.assign(result, { resolve, reject }));
  return result;
};

const [settings, command, ...args] = process.argv.slice(2);
const { servers, topic, group, ca_file: caFile, user, password } = JSON.parse(settings);
const common = {
  clientId: "platformatic",
  bootstrapBrokers: [servers],
  ...(caFile && { tls: { ca: readFileSync(caFile) }, sasl: { mechanism: "SCRAM-SHA-512", username: user, password } }),
};
const say = (value) => console.log(JSON.stringify(value));

async function withAdmin({ Admin }, use) {
  const admin = new Admin(common);
  try {
    return await use(admin);
  } finally {
    await admin.close();
  }
}

const commands = {
  async produce({ Producer, stringSerializers }, codec, idempotent) {
    const values = readFileSync(0, "utf8").split("\n").filter((line) => line);
    const producer = new Producer({ ...common, serializers: stringSerializers, idempotent: idempotent === "true" });
    const { offsets } = await producer.send({ acks: -1, compression: codec, messages: values.map((value) => ({ topic, value })) });
    await producer.close();
    say({ batches: offsets.length });
  },

  async member({ Consumer, stringDeserializers }, strategy, instance) {
    const consumer = new Consumer({
      ...common,
      groupId: group,
      deserializers: stringDeserializers,
      protocols: [{ name: strategy, version: strategy === "cooperative-sticky" ? 3 : 1 }],
      // A new Node process may take seconds to join; a static member's place must still be there.
      sessionTimeout: instance ? 30000 : 6000,
      rebalanceTimeout: instance ? 30000 : 10000,
      heartbeatInterval: 300,
      // A fetch from before a rebalance still delivers what was revoked, on Apache Kafka too: keep it short.
      maxWaitTime: 200,
      ...(instance && { groupInstanceId: instance }),
    });
    consumer.on("consumer:group:join", ({ assignments }) => {
      const mine = (assignments || []).find((each) => each.topic === topic);
      say({ assignment: mine ? mine.partitions : [] });
    });
    const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: true });
    // The stream first: a consumer that is being closed does not commit what its streams still hold.
    process.once("SIGTERM", () => stream.close().then(() => consumer.close(true)).then(() => process.exit(0)));
    for await (const message of stream) say({ value: message.value });
    await new Promise(() => {});
  },

  committed: (library) => withAdmin(library, async (admin) => {
    const [found] = await admin.listConsumerGroupOffsets({ groups: [group] });
    const mine = found.topics.find((each) => each.name === topic);
    const partitions = mine ? mine.partitions : [];
    say(Object.fromEntries(partitions.map((each) => [each.partitionIndex, Number(each.committedOffset)])));
  }),

  commit: (library, offsets) => withAdmin(library, (admin) => admin.alterConsumerGroupOffsets({
    groupId: group,
    topics: [{
      name: topic,
      partitionOffsets: Object.entries(JSON.parse(offsets)).map(([partition, offset]) => ({ partition: Number(partition), offset: BigInt(offset) })),
    }],
  })),

  describe: (library) => withAdmin(library, async (admin) => {
    const found = (await admin.describeGroups({ groups: [group] })).get(group);
    say({ state: found.state, members: found.members.size });
  }),

  delete: (library) => withAdmin(library, (admin) => admin.deleteGroups({ groups: [group] })),
};

codecs()
  .then(({ zstd }) => {
    zlib.zstdCompressSync ??= (data) => Buffer.from(zstd.compress(data));
    zlib.zstdDecompressSync ??= (data) => Buffer.from(zstd.decompress(data));
    return commands[command](require("@platformatic/kafka"), ...args);
  })
  .then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
