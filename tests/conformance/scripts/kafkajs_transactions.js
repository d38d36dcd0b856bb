// Three transactions with kafkajs: committed, aborted, committed with offsets of a group.
const { Kafka, logLevel } = require("kafkajs");

async function main([servers, topic, group]) {
  const kafka = new Kafka({ brokers: [servers], logLevel: logLevel.NOTHING });
  const producer = kafka.producer({
    transactionalId: `kafkajs-${topic}`,
    maxInFlightRequests: 1,
    idempotent: true,
  });
  await producer.connect();
  for (const [value, commit] of [["a", true], ["b", false]]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value, partition: 0 }] });
    await (commit ? transaction.commit() : transaction.abort());
  }
  const last = await producer.transaction();
  await last.send({ topic, messages: [{ value: "c", partition: 0 }] });
  await last.sendOffsets({
    consumerGroupId: group,
    topics: [{ topic, partitions: [{ partition: 0, offset: "7" }] }],
  });
  await last.commit();
  await producer.disconnect();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
