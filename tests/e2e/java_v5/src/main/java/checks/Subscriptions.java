package checks;

import static checks.Context.expect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.BackoffPolicy;
import org.apache.pulsar.client.api.v5.config.BatchingPolicy;
import org.apache.pulsar.client.api.v5.config.DeadLetterPolicy;
import org.apache.pulsar.client.api.v5.config.ProcessingTimeoutPolicy;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/** What subscriptions and checkpoints get over splits, merges, seeks and deletions. */
final class Subscriptions {
    private static final int PART = 100;
    private static final Duration ARRIVES = Duration.ofSeconds(30);
    private static final Duration QUIET = Duration.ofMillis(500);

    private Subscriptions() {}

    /** Something that receives and acknowledges. */
    private interface Source {
        Message<String> receive(Duration limit) throws Exception;
    }

    private static Source of(StreamConsumer<String> consumer) {
        return limit -> {
            Message<String> message = consumer.receive(limit);
            if (message != null) {
                consumer.acknowledgeCumulative(message.id());
            }
            return message;
        };
    }

    private static Source of(QueueConsumer<String> consumer) {
        return limit -> {
            Message<String> message = consumer.receive(limit);
            if (message != null) {
                consumer.acknowledge(message.id());
            }
            return message;
        };
    }

    /**
     * Receive the numbers from {@code first} up to {@code end}, and nothing else. One may come again:
     * the client sends again what has no receipt when it hears of the end of a segment.
     */
    private static void receive(Source source, int first, int end, boolean inOrder)
            throws Exception {
        Set<Integer> missing = new TreeSet<>();
        for (int number = first; number < end; number++) {
            missing.add(number);
        }
        Map<String, Integer> last = new HashMap<>();
        while (!missing.isEmpty()) {
            Message<String> message = source.receive(ARRIVES);
            expect(message != null, missing.size() + " did not come, the first is " + first(missing));
            int number = Integer.parseInt(message.value());
            if (!missing.remove(number)) {
                expect(number >= first && number < end, number + " came, and was not expected");
                continue;
            }
            Integer before = last.put(message.key().orElse(""), number);
            expect(!inOrder || before == null || before < number, number + " behind " + before);
        }
        Message<String> more = source.receive(QUIET);
        while (more != null) {
            int number = Integer.parseInt(more.value());
            expect(number >= first && number < end, number + " came, and was not expected");
            more = source.receive(QUIET);
        }
    }

    private static int first(Set<Integer> numbers) {
        return numbers.iterator().next();
    }

    private static void nothing(Source source) throws Exception {
        Message<String> more = source.receive(QUIET);
        expect(more == null, more == null ? "" : more.value() + " came, and nothing should");
    }

    /**
     * Send a part, each key's messages one after the other: the client keeps no order among those
     * that it sends again in another segment.
     */
    private static void send(Producer<String> producer, int part) throws Exception {
        for (int first = 0; first < PART; first += Context.KEYS) {
            Context.send(producer, part * PART + first, Context.KEYS);
        }
    }

    /** Send parts, with changes of the layout between them. Returns when the last half began. */
    private static long sendParts(Context context, Producer<String> producer) throws Exception {
        send(producer, 0);
        context.ask("split a segment", context.topic());
        send(producer, 1);
        Thread.sleep(20);
        long middle = System.currentTimeMillis();
        Thread.sleep(20);
        send(producer, 2);
        context.ask("merge two segments", context.topic());
        context.ask("split a segment", context.topic());
        send(producer, 3);
        return middle;
    }

    /** Consumers stay attached; each seek gives them again exactly what it says. */
    static void seekStream(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                StreamConsumer<String> consumer = context.stream(context.topic())) {
            seek(context, producer, of(consumer), "stream");
        }
    }

    static void seekQueue(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                QueueConsumer<String> consumer = context.queue(context.topic())) {
            seek(context, producer, of(consumer), "queue");
        }
    }

    private static void seek(
            Context context, Producer<String> producer, Source source, String subscription)
            throws Exception {
        boolean inOrder = subscription.equals("stream");
        long middle = sendParts(context, producer);
        receive(source, 0, 4 * PART, inOrder);
        context.ask("seek " + subscription + " " + middle, context.topic());
        receive(source, 2 * PART, 4 * PART, inOrder);
        context.ask("seek over HTTP " + subscription + " 0", context.topic());
        receive(source, 0, 4 * PART, inOrder);
        context.ask("seek " + subscription + " " + (System.currentTimeMillis() + 1_000), context.topic());
        nothing(source);
        context.ask("clear backlog " + subscription, context.topic());
        send(producer, 4);
        receive(source, 4 * PART, 5 * PART, inOrder);
    }

    /** Nobody of a subscription at the end is connected while the layout changes. */
    static void away(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic())) {
            latest(context).close();
            sendParts(context, producer);
            try (QueueConsumer<String> consumer = latest(context)) {
                receive(of(consumer), 0, 4 * PART, false);
            }
        }
    }

    private static QueueConsumer<String> latest(Context context) throws Exception {
        return context.client()
                .newQueueConsumer(Schema.string())
                .topic(context.topic())
                .subscriptionName("queue")
                .subscriptionInitialPosition(SubscriptionInitialPosition.LATEST)
                .subscribe();
    }

    /** A backlog that nobody has read is cleared in sealed and active segments. */
    static void clearBacklog(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic())) {
            context.queue(context.topic()).close();
            sendParts(context, producer);
            context.ask("clear backlog queue", context.topic());
            try (QueueConsumer<String> consumer = context.queue(context.topic())) {
                nothing(of(consumer));
                send(producer, 4);
                receive(of(consumer), 4 * PART, 5 * PART, false);
            }
        }
    }

    /** Checkpoints from before, between and behind changes of the layout are restored. */
    static void checkpoints(Context context) throws Exception {
        List<byte[]> saved = new ArrayList<>();
        try (Producer<String> producer = context.producer(context.topic());
                CheckpointConsumer<String> consumer = reader(context, Checkpoint.earliest());
                CheckpointConsumer<String> live = reader(context, Checkpoint.latest())) {
            Source source = consumer::receive;
            saved.add(consumer.checkpoint().toByteArray());
            String[] changes = {"split a segment", "split a segment", "merge two segments"};
            for (int part = 0; part < changes.length; part++) {
                send(producer, part);
                receive(source, part * PART, (part + 1) * PART, true);
                saved.add(consumer.checkpoint().toByteArray());
                context.ask(changes[part], context.topic());
            }
            send(producer, changes.length);
            receive(source, changes.length * PART, (changes.length + 1) * PART, true);
            receive(live::receive, 0, (changes.length + 1) * PART, false);
            saved.add(consumer.checkpoint().toByteArray());
        }
        for (int part = 0; part < saved.size(); part++) {
            Checkpoint start = Checkpoint.fromByteArray(saved.get(part));
            try (CheckpointConsumer<String> consumer = reader(context, start)) {
                receive(consumer::receive, part * PART, 4 * PART, false);
            } catch (AssertionError error) {
                throw new AssertionError("from checkpoint " + part + ": " + error.getMessage(), error);
            }
        }
        try (CheckpointConsumer<String> consumer = reader(context, Checkpoint.latest())) {
            nothing(consumer::receive);
        }
    }

    private static CheckpointConsumer<String> reader(Context context, Checkpoint start)
            throws Exception {
        return context.client()
                .newCheckpointConsumer(Schema.string())
                .topic(context.topic())
                .startPosition(start)
                .create();
    }

    /** A group of checkpoint consumers shares the segments. */
    static void checkpointGroup(Context context) throws Exception {
        context.ask("create with 4 segments", context.topic());
        try (Producer<String> producer = context.producer(context.topic());
                CheckpointConsumer<String> one = grouped(context, "one");
                CheckpointConsumer<String> other = grouped(context, "other")) {
            send(producer, 0);
            Set<Integer> seen = new HashSet<>();
            int[] counts = new int[2];
            long until = System.nanoTime() + ARRIVES.toNanos();
            while (seen.size() < PART && System.nanoTime() < until) {
                int place = 0;
                for (CheckpointConsumer<String> each : List.of(one, other)) {
                    Message<String> message = each.receive(Duration.ofMillis(50));
                    if (message != null) {
                        seen.add(Integer.parseInt(message.value()));
                        counts[place]++;
                    }
                    place++;
                }
            }
            expect(seen.size() == PART, "only " + seen.size() + " of " + PART + " came");
            expect(counts[0] > 0 && counts[1] > 0, "one consumer got all messages");
        }
    }

    private static CheckpointConsumer<String> grouped(Context context, String name)
            throws Exception {
        return context.client()
                .newCheckpointConsumer(Schema.string())
                .topic(context.topic())
                .startPosition(Checkpoint.earliest())
                .consumerGroup("group")
                .consumerName(name)
                .create();
    }

    /** Two consumers; each message is refused once, over the end of its segment too. */
    static void refused(Context context) throws Exception {
        try (Producer<String> producer = unbatched(context);
                QueueConsumer<String> one = refusing(context);
                QueueConsumer<String> other = refusing(context)) {
            send(producer, 0);
            Set<String> once = new HashSet<>();
            Set<String> twice = new HashSet<>();
            long until = System.nanoTime() + ARRIVES.toNanos();
            for (int count = 0; twice.size() < PART && System.nanoTime() < until; count++) {
                if (count == PART / 2) {
                    context.ask("split a segment", context.topic());
                }
                QueueConsumer<String> each = count % 2 == 0 ? one : other;
                Message<String> message = each.receive(Duration.ofMillis(50));
                if (message == null) {
                    continue;
                }
                if (once.add(message.value())) {
                    each.negativeAcknowledge(message.id());
                } else {
                    expect(message.redeliveryCount() > 0, "it says that it came first");
                    expect(twice.add(message.value()), message.value() + " came three times");
                    each.acknowledge(message.id());
                }
            }
            expect(twice.size() == PART, "only " + twice.size() + " came again");
        }
    }

    private static Producer<String> unbatched(Context context) throws Exception {
        return context.client()
                .newProducer(Schema.string())
                .topic(context.topic())
                .batchingPolicy(BatchingPolicy.ofDisabled())
                .create();
    }

    private static QueueConsumer<String> refusing(Context context) throws Exception {
        return context.client()
                .newQueueConsumer(Schema.string())
                .topic(context.topic())
                .subscriptionName("queue")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .negativeAckRedeliveryBackoff(
                        BackoffPolicy.exponential(
                                Duration.ofMillis(100), Duration.ofMillis(200)))
                .subscribe();
    }

    /** What is not acknowledged in time comes again; after that it goes to another topic. */
    static void deadLetters(Context context) throws Exception {
        String dead = context.topic() + "-dead";
        try (QueueConsumer<String> letters = context.queue(dead);
                Producer<String> producer = unbatched(context);
                QueueConsumer<String> consumer =
                        context.client()
                                .newQueueConsumer(Schema.string())
                                .topic(context.topic())
                                .subscriptionName("queue")
                                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                                .processingTimeout(
                                        ProcessingTimeoutPolicy.of(Duration.ofSeconds(1)))
                                .deadLetterPolicy(
                                        DeadLetterPolicy.builder()
                                                .maxRedeliverCount(1)
                                                .deadLetterTopic(dead)
                                                .build())
                                .subscribe()) {
            Context.send(producer, 0, 10);
            int came = 0;
            Set<String> found = new HashSet<>();
            long until = System.nanoTime() + ARRIVES.toNanos();
            while (found.size() < 10 && System.nanoTime() < until) {
                if (consumer.receive(Duration.ofMillis(50)) != null) {
                    came++;
                }
                Message<String> letter = letters.receive(Duration.ofMillis(50));
                if (letter != null) {
                    found.add(letter.value());
                    letters.acknowledge(letter.id());
                }
            }
            expect(found.size() == 10, "only " + found.size() + " dead letters, of " + came);
            expect(came >= 20, "messages came " + came + " times before");
        }
    }

    /** Rebucketing makes a child of the same range. A consumer without buckets reads it whole. */
    static void rebucket(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                StreamConsumer<String> consumer = context.stream(context.topic())) {
            for (int part = 0; part < 3; part++) {
                send(producer, part);
                context.ask("rebucket " + (2 << part), context.topic());
            }
            send(producer, 3);
            receive(of(consumer), 0, 4 * PART, true);
        }
    }

    /** A topic is deleted under its clients, and another one made under its name. */
    static void deleted(Context context) throws Exception {
        context.ask("create with 4 segments", context.topic());
        try (Producer<String> producer = context.producer(context.topic());
                StreamConsumer<String> stream = context.stream(context.topic());
                QueueConsumer<String> queue = context.queue(context.topic())) {
            send(producer, 0);
            receive(of(stream), 0, PART, true);
            receive(of(queue), 0, PART, false);
            context.ask("delete scalable", context.topic());
            nothing(of(queue));
        }
        context.ask("create with 4 segments", context.topic());
        try (Producer<String> producer = context.producer(context.topic());
                StreamConsumer<String> stream = context.stream(context.topic());
                QueueConsumer<String> queue = context.queue(context.topic())) {
            send(producer, 1);
            receive(of(stream), PART, 2 * PART, true);
            receive(of(queue), PART, 2 * PART, false);
        }
    }

    /** Names that have to be escaped somewhere, and names that there cannot be. */
    static void names(Context context) throws Exception {
        for (String odd : List.of("ü", "a b", "a%2Fb", "x/y", "k=v&w", "segment", "0000-ffff-0")) {
            String topic = context.topic() + "-" + odd;
            try (Producer<String> producer = context.producer(topic);
                    StreamConsumer<String> stream = context.stream(topic);
                    QueueConsumer<String> queue = context.queue(topic)) {
                Context.send(producer, 0, 10);
                receive(of(stream), 0, 10, true);
                receive(of(queue), 0, 10, false);
            } catch (Exception | AssertionError error) {
                throw new AssertionError("as " + odd + ": " + Context.story(error), error);
            }
        }
        for (String bad : List.of("topic://public/absent/x", "topic://absent/default/x")) {
            try {
                context.producer(bad).close();
            } catch (PulsarClientException | IllegalArgumentException refused) {
                continue;
            }
            throw new AssertionError("a producer of " + bad + " was created");
        }
    }

    /** The classic name of a scalable topic reaches no second topic beside it. */
    static void twin(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                QueueConsumer<String> queue = context.queue(context.topic())) {
            Context.send(producer, 0, 10);
            receive(of(queue), 0, 10, false);
            try (Producer<String> other = context.producer(context.classicTopic())) {
                Context.send(other, 10, 10);
            } catch (PulsarClientException refused) {
                nothing(of(queue));
                return;
            }
            receive(of(queue), 10, 20, false);
        }
    }
}
