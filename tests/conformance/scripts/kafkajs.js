// kafkajs against a broker: node kafkajs.js <servers> <topic> <group> <step> [ca file, user, password]
const { readFileSync } = require("fs");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [servers, topic, group, step, caFile, username, password] = process.argv.slice(2);
const secure = caFile
  ? {
      ssl: { ca: [readFileSync(caFile)] },
      sasl: { mechanism: "scram-sha-512", username, password },
    }
  : {};
const kafka = new Kafka({ clientId: "kafkajs", brokers: [servers], logLevel: logLevel.NOTHING, ...secure });

async function consume(count) {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 500 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`only ${values.length} of ${count}`)), 20000);
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString());
        if (values.length === count) {
          clearTimeout(timer);
          done();
        }
      },
    }).catch(fail);
  });
  await consumer.disconnect();
  return values.sort();
}

async function main() {
  const messages = Array.from({ length: 50 }, (_, n) => ({ value: `value-${String(n).padStart(3, "0")}` }));
  const expected = messages.map((m) => m.value).join();
  const check = (values) => {
    if (values.join() !== expected) throw new Error(`read ${values.length} values, not what was sent`);
  };
  const producer = kafka.producer({ idempotent: step === "idempotent" });
  if (["plain", "gzip", "idempotent"].includes(step)) {
    await producer.connect();
    await producer.send({ topic, messages, compression: step === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None });
    await producer.disconnect();
    check(await consume(50));
  } else if (step === "share") {
    const admin = kafka.admin();
    await admin.connect();
    const owned = [new Set(), new Set()];
    const members = owned.map((mine) => {
      const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 300 });
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        mine.clear();
        (payload.memberAssignment[topic] || []).forEach((p) => mine.add(p));
      });
      return consumer;
    });
    const until = async (holds, what) => {
      for (let n = 0; n < 400; n += 1) {
        if (holds()) return;
        await new Promise((r) => setTimeout(r, 50));
      }
      throw new Error(`not in time: ${what}`);
    };
    for (const member of members) {
      await member.connect();
      await member.subscribe({ topics: [topic], fromBeginning: true });
      await member.run({ eachMessage: async () => {} });
    }
    await until(() => owned[0].size === 2 && owned[1].size === 2, "two partitions each");
    const described = await admin.describeGroups([group]);
    if (described.groups[0].members.length !== 2) throw new Error("two members expected");
    await members[0].disconnect();
    await until(() => owned[1].size === 4, "the second takes over");
    await members[1].disconnect();
    await admin.disconnect();
  } else if (step === "offsets") {
    const admin = kafka.admin();
    await admin.connect();
    await producer.connect();
    await producer.send({ topic, messages });
    await producer.disconnect();
    check(await consume(50));
    await admin.resetOffsets({ groupId: group, topic, earliest: true });
    check(await consume(50));
    const offsets = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    const total = offsets[0].partitions.reduce((sum, p) => sum + Number(p.offset), 0);
    if (total !== 50) throw new Error(`committed ${total}`);
    await admin.deleteGroups([group]);
    await admin.createTopics({ topics: [{ topic: `${topic}-more`, numPartitions: 2 }] });
    const configs = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic }] });
    if (!configs.resources[0].configEntries.length) throw new Error("no configurations");
    await admin.deleteTopics({ topics: [`${topic}-more`] });
    await admin.disconnect();
  }
  console.log("ok");
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
