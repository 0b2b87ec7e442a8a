// What the pure JavaScript client (pulsar-flex) sees of a cluster. Prints one JSON line for each
// check; one that needs the cluster disturbed prints a line with "ask" and waits for a line.
'use strict';

const readline = require('readline');
const { Producer, Consumer, logLevel } = require('pulsar-flex');

const [address, prefix] = process.argv.slice(2);
const RECEIVE_MS = 30000;
const HALF_COUNT = 100;
const ATTEMPTS = 200;

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const topicOf = (name) => `persistent://public/default/${prefix}${name}`;
const print = (content) => process.stdout.write(`${JSON.stringify(content)}\n`);

const expectEqual = (found, expected) => {
  if (JSON.stringify(found) !== JSON.stringify(expected)) {
    throw new Error(`found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
  }
};

const ask = async (what, topic) => {
  print({ ask: what, topic });
  const { value } = await answers.next();
  if (!value || value.startsWith('cannot')) throw new Error(`the test answered ${value}`);
};

const settings = (topic) => ({ topic, discoveryServers: [address], logLevel: logLevel.NOTHING });

// The client does not look a topic up again when it is told to; after a disturbance its
// application has to. The first use of a topic passes at the first attempt.
const again = async (action) => {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await action();
    } catch (refused) {
      if (attempt === ATTEMPTS) throw refused;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
};

const newProducer = async (topic, more = {}) => {
  const producer = new Producer({
    ...settings(topic),
    producerAccessMode: Producer.ACCESS_MODES.SHARED,
    ...more,
  });
  await producer.create();
  return producer;
};

// Subscribes (from here on: the client asks for no other position) and adds what comes to
// `received` in the background. The client has no limit of its own: what does not fit is dropped.
const newConsumer = async (topic, kind, received, notify = () => {}) => {
  const consumer = new Consumer({
    ...settings(topic),
    subscription: 'all',
    subType: Consumer.SUB_TYPES[kind],
    consumerName: `flex-${Math.random()}`,
    receiveQueueSize: 1000,
    reconnectInterval: 200,
  });
  await consumer.subscribe();
  await consumer.run({
    autoAck: false,
    onMessage: async ({ ack, message, properties }) => {
      received.push({ message: message.toString(), properties });
      notify();
      await ack();
    },
  });
  return consumer;
};

// `until(enough)` ends when `enough` says so of what was received, and fails if that takes long.
const subscribe = async (topic, kind) => {
  const received = [];
  let notify = () => {};
  const consumer = await newConsumer(topic, kind, received, () => notify());
  const until = async (enough) => {
    await new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`only ${received.length} messages came`)), RECEIVE_MS);
      notify = () => {
        if (enough(received)) {
          clearTimeout(timer);
          resolve();
        }
      };
      notify();
    });
    await consumer.unsubscribe();
    return received;
  };
  return until;
};

const numbered = (count) => Array.from({ length: count }, (_, number) => `message-${number}`);
const values = (received) => received.map(({ message }) => message);

const produceAndConsume = async () => {
  const topic = topicOf('plain');
  const until = await subscribe(topic, 'EXCLUSIVE');
  const producer = await newProducer(topic);
  for (const payload of numbered(30)) {
    await producer.sendMessage({ payload, properties: { colour: 'green' } });
  }
  const received = await until((all) => all.length >= 30);
  expectEqual(values(received), numbered(30));
  expectEqual(received[0].properties, { colour: 'green' });
  await producer.close();
};

const batches = async () => {
  const topic = topicOf('batches');
  const until = await subscribe(topic, 'SHARED');
  const producer = await newProducer(topic);
  await producer.sendBatch({
    messages: numbered(50).map((payload) => ({ payload, properties: { of: 'batch' } })),
  });
  expectEqual(values(await until((all) => all.length >= 50)), numbered(50));
  await producer.close();
};

const exclusiveProducer = async () => {
  const topic = topicOf('exclusive');
  const more = { producerAccessMode: Producer.ACCESS_MODES.EXCLUSIVE };
  const producer = await newProducer(topic, more);
  const second = new Producer({ ...settings(topic), ...more });
  let refusal = '';
  await second.create().catch((refused) => {
    refusal = refused.name;
  });
  expectEqual(refusal, 'PulsarFlexProducerCreationError');
  await producer.close();
};

// Two consumers get everything between them.
const together = (kind) => async () => {
  const topic = topicOf(`together-${kind.toLowerCase()}`);
  const received = [];
  const count = 40;
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${received.length} came`)), RECEIVE_MS).unref();
    const notify = () => received.length >= count && resolve();
    (async () => {
      await newConsumer(topic, kind, received, notify);
      await newConsumer(topic, kind, received, notify);
      const producer = await newProducer(topic);
      for (const payload of numbered(count)) await producer.sendMessage({ payload, properties: {} });
      await producer.close();
    })().catch(reject);
  });
  expectEqual(values(received).sort(), numbered(count).sort());
};

// The consumer goes on by itself. The producer is another one: this client gives a message that
// it repeats after a reconnect the number of a later one, also with a stock broker.
const disturbed = (disturbance) => async () => {
  const topic = topicOf(disturbance.replace(' ', '-'));
  const until = await subscribe(topic, 'SHARED');
  const contents = numbered(2 * HALF_COUNT);
  const halves = [contents.slice(0, HALF_COUNT), contents.slice(HALF_COUNT)];
  for (const half of halves) {
    const isFirst = half === halves[0];
    const producer = await (isFirst ? newProducer(topic) : again(() => newProducer(topic)));
    for (const payload of half) {
      await producer.sendMessage({ payload, properties: {} });
    }
    await producer.close();
    if (isFirst) await ask(disturbance, topic);
  }
  const distinct = (all) => new Set(values(all)).size;
  const received = await until((all) => distinct(all) >= contents.length);
  expectEqual([...new Set(values(received))].sort(), [...contents].sort());
};

const checks = {
  'produce and consume': produceAndConsume,
  batches,
  'exclusive producer': exclusiveProducer,
  'shared subscription': together('SHARED'),
  'failover subscription': together('FAILOVER'),
  'key shared subscription': together('KEY_SHARED'),
  'topic moved': disturbed('move'),
  'broker killed': disturbed('kill owner'),
};

const main = async () => {
  for (const [check, run] of Object.entries(checks)) {
    let error = '';
    try {
      await Promise.race([
        run(),
        new Promise((_, reject) => setTimeout(() => reject(new Error('no end')), 60000).unref()),
      ]);
    } catch (failed) {
      error = String((failed && failed.stack) || failed);
    }
    print({ check, error });
  }
  process.exit(0);
};

main();
