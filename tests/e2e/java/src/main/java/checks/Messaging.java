package checks;

import static checks.Context.expect;
import static checks.Context.expectEqual;
import static checks.Context.expectNothing;
import static checks.Context.expectRefused;
import static checks.Context.numbered;
import static checks.Context.readAll;
import static checks.Context.receive;
import static checks.Context.received;
import static checks.Context.send;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.NotFoundException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerBusyException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerFencedException;
import org.apache.pulsar.client.api.PulsarClientException.TopicDoesNotExistException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;
import org.apache.pulsar.client.api.TableView;

/** Producing, and reading what was produced. */
final class Messaging {
    private Messaging() {}

    static void register(Map<String, Main.Check> checks) {
        checks.put("produce and consume", Messaging::produceAndConsume);
        checks.put("what a message carries", Messaging::whatAMessageCarries);
        checks.put("batches and compression", Messaging::batchesAndCompression);
        checks.put("chunks", Messaging::chunks);
        checks.put("partitions", Messaging::partitions);
        checks.put("partitions grow", Messaging::partitionsGrow);
        checks.put("creation forbidden", Messaging::creationForbidden);
        checks.put("named producer", Messaging::namedProducer);
        checks.put("access modes", Messaging::accessModes);
        checks.put("reader", Messaging::reader);
        checks.put("table view", Messaging::tableView);
        checks.put("non persistent", Messaging::nonPersistent);
        checks.put("pattern", Messaging::pattern);
        checks.put("come and go", Messaging::comeAndGo);
        checks.put("several topics", Messaging::severalTopics);
        checks.put("transactions refused", Messaging::transactionsRefused);
    }

    private static void produceAndConsume(Context context) throws Exception {
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();

        send(context.producer(), numbered(0, 100));

        expectEqual(received(consumer, 100), numbered(0, 100));
        expectNothing(consumer);
    }

    private static void whatAMessageCarries(Context context) throws Exception {
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();
        for (boolean batching : new boolean[] {false, true}) {
            Producer<String> producer =
                    context.client().newProducer(Schema.STRING).topic(context.topic())
                            .enableBatching(batching).create();

            producer.newMessage().value("told").key("key").orderingKey(new byte[] {1, 2})
                    .property("colour", "green").eventTime(1234).sequenceId(70).send();

            Message<String> message = receive(consumer);
            expectEqual(message.getValue(), "told");
            expectEqual(message.getKey(), "key");
            expect(Arrays.equals(message.getOrderingKey(), new byte[] {1, 2}), "ordering key");
            expectEqual(message.getProperties(), Map.of("colour", "green"));
            expectEqual(message.getEventTime(), 1234L);
            expectEqual(message.getSequenceId(), 70L);
            expectEqual(message.getProducerName(), producer.getProducerName());
            producer.close();
        }
        // Keys that are not text.
        Producer<String> producer = context.producer();
        producer.newMessage().value("odd").keyBytes(new byte[] {0, (byte) 0xff}).send();
        producer.newMessage().value(null).key("gone").send();
        expect(Arrays.equals(receive(consumer).getKeyBytes(), new byte[] {0, -1}), "key bytes");
        expectEqual(receive(consumer).getValue(), null);
    }

    private static void batchesAndCompression(Context context) throws Exception {
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();
        for (CompressionType kind : CompressionType.values()) {
            Producer<String> producer =
                    context.client().newProducer(Schema.STRING).topic(context.topic())
                            .compressionType(kind).batchingMaxMessages(25)
                            .batchingMaxPublishDelay(10, TimeUnit.SECONDS).create();
            List<CompletableFuture<MessageId>> sends = new ArrayList<>();
            for (String content : numbered(0, 100)) {
                sends.add(producer.sendAsync(content));
            }
            producer.flush();
            for (CompletableFuture<MessageId> one : sends) {
                one.get(Context.RECEIVE_S, TimeUnit.SECONDS);
            }
            expectEqual(received(consumer, 100), numbered(0, 100));
            producer.close();
        }
    }

    private static void chunks(Context context) throws Exception {
        byte[] content = new byte[11 * 1024 * 1024];
        new Random(7).nextBytes(content);
        Consumer<byte[]> consumer =
                context.client().newConsumer().topic(context.topic())
                        .subscriptionName("all").subscribe();
        Producer<byte[]> producer =
                context.client().newProducer().topic(context.topic()).enableBatching(false)
                        .enableChunking(true).create();

        producer.send(content);
        producer.send(new byte[] {1});

        Message<byte[]> message = receive(consumer);
        expect(Arrays.equals(message.getValue(), content), "the content differs");
        consumer.acknowledge(message);
        expectEqual(received(consumer, 1).get(0).length, 1);
    }

    private static void partitions(Context context) throws Exception {
        context.ask("create with 4 partitions", context.topic());
        expectEqual(context.client().getPartitionsForTopic(context.topic()).get().size(), 4);
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();
        Producer<String> producer = context.producer();

        for (int number = 0; number < 120; number++) {
            producer.newMessage().key("key-" + number % 12).value(String.valueOf(number)).send();
        }

        Map<String, Set<String>> places = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        for (int number = 0; number < 120; number++) {
            Message<String> message = receive(consumer);
            consumer.acknowledge(message);
            int value = Integer.parseInt(message.getValue());
            expect(value > last.getOrDefault(message.getKey(), -1), "a key is out of order");
            last.put(message.getKey(), value);
            places.computeIfAbsent(message.getKey(), key -> new HashSet<>())
                    .add(message.getTopicName());
        }
        expect(places.values().stream().allMatch(set -> set.size() == 1), places.toString());
    }

    /** Producer and consumer find the new partitions by asking for their number every second. */
    private static void partitionsGrow(Context context) throws Exception {
        context.ask("create with 4 partitions", context.topic());
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe();
        Producer<String> producer =
                context.producerBuilder().autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                        .create();
        Set<String> sent = new HashSet<>();
        Set<Integer> used = new HashSet<>();

        context.ask("grow to 6 partitions", context.topic());
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Context.RECEIVE_S);
        while (used.size() < 6 && System.nanoTime() < end) {
            String content = "message-" + sent.size();
            used.add(((MessageIdAdv) producer.send(content)).getPartitionIndex());
            sent.add(content);
            Thread.sleep(20);
        }

        expectEqual(used.size(), 6);
        expectEqual(new HashSet<>(received(consumer, sent.size())), sent);
    }

    private static void creationForbidden(Context context) throws Exception {
        String absent = context.ask("a topic that must not be created", "") + "/absent";

        expectNotFound(() -> context.client().newProducer().topic(absent).create());
        expectNotFound(
                () -> context.client().newConsumer().topic(absent).subscriptionName("s")
                        .subscribe());
    }

    private static void expectNotFound(Context.Action action) throws Exception {
        try {
            action.run();
        } catch (NotFoundException | TopicDoesNotExistException expected) {
            return;
        }
        throw new AssertionError("was not refused");
    }

    private static void namedProducer(Context context) throws Exception {
        Producer<String> first = context.producerBuilder().producerName("teller").create();
        send(first, numbered(0, 10));
        first.close();

        Producer<String> again = context.producerBuilder().producerName("teller").create();
        expectEqual(again.getLastSequenceId(), 9L);
        for (long sequenceId : new long[] {5, 9, 10, 10, 11}) {
            again.newMessage().sequenceId(sequenceId).value("message-" + sequenceId).send();
        }

        Reader<String> reader =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(MessageId.earliest).create();
        expectEqual(readAll(reader), numbered(0, 12));
        expectRefused(
                ProducerBusyException.class,
                () -> context.producerBuilder().producerName("teller").create());
    }

    private static void accessModes(Context context) throws Exception {
        Producer<String> first =
                context.producerBuilder().accessMode(ProducerAccessMode.Exclusive).create();
        expectRefused(
                ProducerFencedException.class,
                () -> context.producerBuilder().accessMode(ProducerAccessMode.Exclusive)
                        .create());
        CompletableFuture<Producer<String>> waiting =
                context.producerBuilder().accessMode(ProducerAccessMode.WaitForExclusive)
                        .createAsync();
        send(first, numbered(0, 5));
        expect(!waiting.isDone(), "the waiting producer did not wait");
        first.close();
        Producer<String> second = waiting.get(Context.RECEIVE_S, TimeUnit.SECONDS);
        send(second, numbered(5, 5));

        Producer<String> third =
                context.producerBuilder().accessMode(ProducerAccessMode.ExclusiveWithFencing)
                        .create();
        send(third, numbered(10, 5));

        expectRefused(PulsarClientException.class, () -> second.send("too late"));
        Reader<String> reader =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(MessageId.earliest).create();
        expectEqual(readAll(reader), numbered(0, 15));
    }

    private static void reader(Context context) throws Exception {
        Producer<String> producer = context.producer();
        List<MessageId> ids = send(producer, numbered(0, 20));

        Reader<String> earliest =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(MessageId.earliest).create();
        Reader<String> latest =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(MessageId.latest).create();
        Reader<String> middle =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(ids.get(4)).create();
        Reader<String> middleInclusive =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(ids.get(4)).startMessageIdInclusive().create();
        Reader<String> rollback =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create();

        expectEqual(readAll(earliest), numbered(0, 20));
        expectEqual(readAll(latest), List.of());
        expectEqual(readAll(middle), numbered(5, 15));
        expectEqual(readAll(middleInclusive), numbered(4, 16));
        expectEqual(readAll(rollback), numbered(0, 20));
        send(producer, numbered(20, 1));
        expectEqual(readAll(latest), numbered(20, 1));
        earliest.seek(ids.get(17));
        expectEqual(readAll(earliest), numbered(18, 3));
    }

    private static void tableView(Context context) throws Exception {
        Producer<String> producer = context.producer();
        for (int number = 0; number < 10; number++) {
            producer.newMessage().key("key-" + number % 3).value(String.valueOf(number)).send();
        }
        TableView<String> view =
                context.client().newTableView(Schema.STRING).topic(context.topic()).create();

        expectEqual(new HashMap<>(Map.copyOf(asMap(view))),
                new HashMap<>(Map.of("key-0", "9", "key-1", "7", "key-2", "8")));
        producer.newMessage().key("key-1").value("new").send();
        view.refreshAsync().get(Context.RECEIVE_S, TimeUnit.SECONDS);
        expectEqual(view.get("key-1"), "new");
    }

    private static Map<String, String> asMap(TableView<String> view) {
        Map<String, String> values = new HashMap<>();
        view.forEach(values::put);
        return values;
    }

    private static void nonPersistent(Context context) throws Exception {
        String topic = context.topic().replace("persistent://", "non-persistent://");
        Producer<String> producer =
                context.client().newProducer(Schema.STRING).topic(topic).create();
        producer.send("nobody is there");
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(topic).subscriptionName("all")
                        .subscribe();

        producer.send("somebody is there");

        expectEqual(received(consumer, 1), List.of("somebody is there"));
    }

    private static void pattern(Context context) throws Exception {
        for (String name : List.of("one", "other", "apart")) {
            context.client().newProducer(Schema.STRING).topic(context.topic() + "-" + name)
                    .create().send(name);
        }
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING)
                        .topicsPattern(Pattern.compile(context.topic() + "-o.*"))
                        // So long that no listing brings the later topic: a watcher has to.
                        .subscriptionName("all").patternAutoDiscoveryPeriod(300, TimeUnit.SECONDS)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
        expectEqual(new HashSet<>(received(consumer, 2)), Set.of("one", "other"));

        long begin = System.nanoTime();
        context.client().newProducer(Schema.STRING).topic(context.topic() + "-o-later").create()
                .send("later");
        expectEqual(received(consumer, 1), List.of("later"));
        measured("from a producer's first use of a topic to its message at a pattern", begin);
    }

    /** Topics of several shards, where no client creates any: a deleted one stays away. */
    private static void comeAndGo(Context context) throws Exception {
        String local = context.topic().substring(context.topic().lastIndexOf('/'));
        String base = context.ask("a topic that must not be created", "") + local;
        List<String> topics = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            topics.add(base + "-" + number);
        }
        context.ask("create", topics.get(0));
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING)
                        .topicsPattern(Pattern.compile(base + "-.*"))
                        // Only a watcher can bring changes before that.
                        .subscriptionName("all").patternAutoDiscoveryPeriod(300, TimeUnit.SECONDS)
                        .subscribe();
        for (int count = 2; count <= 6; count++) {
            long begin = System.nanoTime();
            context.ask("create", topics.get(count - 1));
            awaitTopics(consumer, topics.subList(0, count));
            measured("from the command that creates a topic to its consumer", begin);
        }
        for (String topic : topics) {
            context.client().newProducer(Schema.STRING).topic(topic).create().send(topic);
        }
        expectEqual(new HashSet<>(received(consumer, 6)), new HashSet<>(topics));

        String gone = topics.remove(3);
        long begin = System.nanoTime();
        context.ask("delete", gone);
        awaitTopics(consumer, topics);
        measured("from the command that deletes a topic to the end of its consumer", begin);
        context.ask("is absent", gone);

        // Every watcher is lost: the client watches again, with the hash of what it has.
        context.ask("restart discovery", "");
        begin = System.nanoTime();
        context.ask("create", gone);
        topics.add(gone);
        awaitTopics(consumer, topics);
        measured("and so behind a restart of each discovery node", begin);
    }

    private static void awaitTopics(Consumer<?> consumer, List<String> topics) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Context.RECEIVE_S);
        Set<String> expected = new HashSet<>(topics);
        Set<String> found = Set.of();
        while (!found.equals(expected)) {
            expect(System.nanoTime() < deadline, "found " + found + ", expected " + expected);
            Thread.sleep(1);
            found = new HashSet<>(((MultiTopicsConsumerImpl<?>) consumer).getPartitions());
        }
    }

    private static void measured(String what, long begin) {
        long tookMs = (System.nanoTime() - begin) / 1_000_000;
        Context.print("{\"measured\":" + Context.quoted(what) + ",\"ms\":" + tookMs + "}");
    }

    private static void severalTopics(Context context) throws Exception {
        List<String> topics = List.of(context.topic() + "-1", context.topic() + "-2");
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topics(topics)
                        .subscriptionName("all").subscribe();
        for (String topic : topics) {
            context.client().newProducer(Schema.STRING).topic(topic).create().send(topic);
        }
        expectEqual(new HashSet<>(received(consumer, 2)), new HashSet<>(topics));
    }

    private static void transactionsRefused(Context context) throws Exception {
        expectRefused(
                PulsarClientException.class,
                () -> PulsarClient.builder()
                        .serviceUrl(context.serviceUrl()).enableTransaction(true)
                        .operationTimeout(5, TimeUnit.SECONDS).build());
    }
}
