package checks;

import static checks.Context.expect;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.schema.Schema;

/** Producing to segments, and reading them. */
final class Segments {
    private static final int MESSAGES = 200;
    private static final int ROUNDS = 20;

    private Segments() {}

    /** The first client creates the topic, with one segment. */
    static void one(Context context) throws Exception {
        roundTrip(context, context.topic());
    }

    static void several(Context context) throws Exception {
        context.ask("create with 4 segments", context.topic());
        roundTrip(context, context.topic());
        String used = context.ask("segments with messages", context.topic());
        expect(Integer.parseInt(used) == 4, used + " segments have messages");
    }

    static void closedNamespace(Context context) throws Exception {
        String namespace = context.ask("a topic that must not be created", context.topic());
        String topic = namespace.replace("persistent://", "topic://") + "/absent";
        try {
            context.producer(topic).close();
        } catch (PulsarClientException refused) {
            return;
        }
        throw new AssertionError("a producer of an absent topic was created");
    }

    static void classic(Context context) throws Exception {
        roundTrip(context, context.classicTopic());
    }

    static void partitions(Context context) throws Exception {
        context.ask("create with 4 partitions", context.classicTopic());
        roundTrip(context, context.classicTopic());
    }

    private static void roundTrip(Context context, String topic) throws Exception {
        try (Producer<String> producer = context.producer(topic)) {
            Context.send(producer, 0, MESSAGES);
        }
        try (QueueConsumer<String> consumer = context.queue(topic)) {
            Context.Received received = new Context.Received();
            Context.receive(consumer, MESSAGES, received);
            Message<String> more = consumer.receive(Duration.ofMillis(300));
            expect(more == null, "a message came that was not sent");
        }
    }

    static void shared(Context context) throws Exception {
        context.ask("create with 4 segments", context.topic());
        try (QueueConsumer<String> one = context.queue(context.topic());
                QueueConsumer<String> other = context.queue(context.topic());
                Producer<String> producer = context.producer(context.topic())) {
            for (int number = 0; number < MESSAGES; number++) {
                // Not in batches, each of which goes to one consumer as a whole.
                Context.send(producer, number, 1);
            }
            Set<String> seen = new HashSet<>();
            int[] counts = new int[2];
            long until = System.nanoTime() + 30_000_000_000L;
            while (seen.size() < MESSAGES && System.nanoTime() < until) {
                int number = 0;
                for (QueueConsumer<String> each : List.of(one, other)) {
                    Message<String> message = each.receive(Duration.ofMillis(100));
                    if (message != null) {
                        expect(seen.add(message.value()), message.value() + " came twice");
                        counts[number]++;
                        each.acknowledge(message.id());
                    }
                    number++;
                }
            }
            expect(seen.size() == MESSAGES, "only " + seen.size() + " messages came");
            expect(counts[0] > 0 && counts[1] > 0, "one consumer got all messages");
        }
    }

    /** Without a group: a checkpoint consumer reads every segment itself. */
    static void checkpoint(Context context) throws Exception {
        context.ask("create with 4 segments", context.topic());
        try (Producer<String> producer = context.producer(context.topic())) {
            Context.send(producer, 0, MESSAGES);
        }
        Context.Received received = new Context.Received();
        Checkpoint halfway;
        try (CheckpointConsumer<String> consumer = reader(context, Checkpoint.earliest())) {
            read(consumer, MESSAGES / 2, received);
            halfway = consumer.checkpoint();
        }
        try (CheckpointConsumer<String> consumer = reader(context, halfway)) {
            read(consumer, MESSAGES / 2, received);
            Message<String> more = consumer.receive(Duration.ofMillis(300));
            expect(more == null, "a message came again");
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

    private static void read(
            CheckpointConsumer<String> consumer, int count, Context.Received received)
            throws Exception {
        for (int number = 0; number < count; number++) {
            Message<String> message = consumer.receive(Duration.ofSeconds(30));
            expect(message != null, "only " + received.count + " messages came");
            received.add(message);
        }
    }

    static void move(Context context) throws Exception {
        disturbed(context, "move segments");
    }

    static void kill(Context context) throws Exception {
        disturbed(context, "kill owner of a segment");
    }

    /** Order holds: deduplication drops what a producer sends again. */
    private static void disturbed(Context context, String disturbance) throws Exception {
        context.ask("create with 4 segments", context.topic());
        int count = MESSAGES / ROUNDS;
        try (Producer<String> producer = context.producer(context.topic());
                QueueConsumer<String> consumer = context.queue(context.topic())) {
            Set<String> seen = new HashSet<>();
            for (int round = 0; round < ROUNDS; round++) {
                if (round == ROUNDS / 4 || round == ROUNDS / 2) {
                    context.ask(disturbance, context.topic());
                }
                Context.send(producer, round * count, count);
            }
            receiveAll(consumer, MESSAGES);
        }
    }

    /** The producer is not told: it meets the end of a segment and goes on in the next ones. */
    static void splitAndMerge(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                QueueConsumer<String> consumer = context.queue(context.topic())) {
            receiveAll(consumer, sentOverChanges(context, producer));
        }
    }

    /** The messages of each key come once and in order, over the ends of segments. */
    static void stream(Context context) throws Exception {
        try (Producer<String> producer = context.producer(context.topic());
                StreamConsumer<String> consumer = context.stream(context.topic())) {
            int count = sentOverChanges(context, producer);
            Context.Received received = new Context.Received();
            for (int number = 0; number < count; number++) {
                Message<String> message = consumer.receive(Duration.ofSeconds(30));
                expect(message != null, "only " + received.count + " of " + count + " came");
                received.add(message);
                consumer.acknowledgeCumulative(message.id());
            }
            Message<String> more = consumer.receive(Duration.ofMillis(300));
            expect(more == null, "a message came that was not sent");
        }
    }

    /** A classic topic becomes scalable under its clients, which need not do anything. */
    static void migrated(Context context) throws Exception {
        context.ask("create with 4 partitions", context.classicTopic());
        try (Producer<String> producer = context.producer(context.classicTopic());
                QueueConsumer<String> queue = context.queue(context.classicTopic())) {
            Context.send(producer, 0, MESSAGES);
            context.ask("migrate", context.classicTopic());
            for (int number = MESSAGES; number < 2 * MESSAGES; number++) {
                // One at a time: a message that is sent again may be overtaken in this release.
                Context.send(producer, number, 1);
            }
            try (StreamConsumer<String> consumer = context.stream(context.topic())) {
                Context.Received received = new Context.Received();
                for (int number = 0; number < 2 * MESSAGES; number++) {
                    Message<String> message = consumer.receive(Duration.ofSeconds(30));
                    expect(message != null, "only " + received.count + " messages came");
                    received.add(message);
                    consumer.acknowledgeCumulative(message.id());
                }
            }
            receiveAll(queue, 2 * MESSAGES);
        }
    }

    /** Split twice and merge while messages are sent; returns how many were. */
    private static int sentOverChanges(Context context, Producer<String> producer)
            throws Exception {
        Load load = new Load(producer);
        load.start();
        load.awaitMore();
        for (String change :
                List.of("split a segment", "split a segment", "merge two segments")) {
            context.ask(change, context.topic());
            load.awaitMore();
            Context.measured("longest gap at: " + change, load.takeLongestGapMs());
        }
        return load.end();
    }

    /** Receive so many different messages; some may come again. */
    private static void receiveAll(QueueConsumer<String> consumer, int count) throws Exception {
        Set<String> seen = new HashSet<>();
        long until = System.nanoTime() + 60_000_000_000L;
        while (seen.size() < count && System.nanoTime() < until) {
            Message<String> message = consumer.receive(Duration.ofSeconds(1));
            if (message != null) {
                seen.add(message.value());
                consumer.acknowledge(message.id());
            }
        }
        expect(seen.size() == count, "only " + seen.size() + " of " + count + " messages came");
    }
}
