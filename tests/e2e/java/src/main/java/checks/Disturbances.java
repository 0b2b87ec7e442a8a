package checks;

import static checks.Context.expect;
import static checks.Context.expectEqual;
import static checks.Context.receive;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;

/** A client at work while its topic moves or its broker dies. */
final class Disturbances {
    private static final long PAUSE_NS = 500_000;

    private Disturbances() {}

    static void register(Map<String, Main.Check> checks) {
        checks.put("http service url", Disturbances::httpServiceUrl);
        checks.put("move under load", context -> underLoad(context, "move", 3));
        checks.put("kill under load", context -> underLoad(context, "kill owner", 1));
    }

    private static void httpServiceUrl(Context context) throws Exception {
        String url = context.ask("http service url", "");
        PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
        Consumer<String> consumer =
                client.newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();
        client.newProducer(Schema.STRING).topic(context.topic()).create().send("over http");
        expectEqual(receive(consumer).getValue(), "over http");
        client.closeAsync();
    }

    private static void underLoad(Context context, String disturbance, int times)
            throws Exception {
        Consumer<String> consumer =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("all").subscribe();
        Producer<String> producer =
                context.producerBuilder().sendTimeout(40, TimeUnit.SECONDS)
                        .maxPendingMessages(2000).create();
        AtomicBoolean stopping = new AtomicBoolean();
        AtomicInteger acknowledged = new AtomicInteger();
        CompletableFuture<Integer> sent =
                CompletableFuture.supplyAsync(() -> sendUntil(producer, stopping, acknowledged));
        for (int number = 0; number < times; number++) {
            waitFor(acknowledged, 300);
            context.ask(disturbance, context.topic());
        }
        waitFor(acknowledged, 300);
        stopping.set(true);
        int count = sent.get(40, TimeUnit.SECONDS);
        producer.flush();

        List<Integer> stored = new ArrayList<>();
        try (Reader<String> reader =
                context.client().newReader(Schema.STRING).topic(context.topic())
                        .startMessageId(MessageId.earliest).create()) {
            Context.readAll(reader).forEach(value -> stored.add(Integer.valueOf(value)));
        }
        expectEqual(acknowledged.get(), count);
        expectEqual(stored.size(), count);
        expectEqual(new ArrayList<>(new TreeSet<>(stored)), stored);
        TreeSet<Integer> consumed = new TreeSet<>();
        while (consumed.size() < count) {
            Message<String> message = receive(consumer);
            consumed.add(Integer.valueOf(message.getValue()));
            consumer.acknowledge(message);
        }
        expectEqual(consumed.last(), count - 1);
    }

    private static int sendUntil(
            Producer<String> producer, AtomicBoolean stopping, AtomicInteger acknowledged) {
        Semaphore room = new Semaphore(200);
        int number = 0;
        while (!stopping.get()) {
            room.acquireUninterruptibly();
            producer.sendAsync(String.valueOf(number++)).whenComplete(
                    (id, failed) -> {
                        if (failed == null) {
                            acknowledged.incrementAndGet();
                        }
                        room.release();
                    });
            LockSupport.parkNanos(PAUSE_NS);
        }
        room.acquireUninterruptibly(200);
        return number;
    }

    private static void waitFor(AtomicInteger counter, int more) throws Exception {
        int goal = counter.get() + more;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (counter.get() < goal) {
            expect(System.nanoTime() < deadline, counter.get() + " of " + goal);
            Thread.sleep(1);
        }
    }
}
