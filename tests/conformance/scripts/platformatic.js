// @platformatic/kafka against a broker: node platformatic.js <servers> <topic> <group> <step>
// The client wants Node 22; this is all it needs of it.
Promise.withResolvers ??= function withResolvers() {
  const result = {};
  result.promise = new Promise((resolve, reject) => Object.assign(result, { resolve, reject }));
  return result;
};
const { Producer, Consumer, Admin, stringSerializers, stringDeserializers } = require("@platformatic/kafka");

const [servers, topic, group, step] = process.argv.slice(2);
const common = { clientId: "platformatic", bootstrapBrokers: [servers] };

async function main() {
  const values = Array.from({ length: 50 }, (_, n) => `value-${String(n).padStart(3, "0")}`);
  const producer = new Producer({ ...common, serializers: stringSerializers, idempotent: step === "idempotent" });
  await producer.send({ messages: values.map((value) => ({ topic, value })), acks: -1 });
  await producer.close();
  const consumer = new Consumer({ ...common, groupId: group, deserializers: stringDeserializers });
  const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: true, sessionTimeout: 10000, heartbeatInterval: 500 });
  const seen = [];
  const timer = setTimeout(() => { console.error(`only ${seen.length}`); process.exit(1); }, 20000);
  for await (const message of stream) {
    seen.push(message.value);
    if (seen.length === values.length) break;
  }
  clearTimeout(timer);
  await consumer.close(true);
  if (seen.sort().join() !== values.join()) throw new Error("read other values than were sent");
  const admin = new Admin(common);
  const groups = await admin.describeGroups({ groups: [group] });
  if (!groups.has(group)) throw new Error("the group is not described");
  await admin.close();
  console.log("ok");
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
