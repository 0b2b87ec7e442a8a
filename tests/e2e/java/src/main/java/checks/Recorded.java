package checks;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/**
 * A producer and a consumer at work on one topic, and at the end a reader of all that it holds. They
 * record what they see as {@code nextgen/harness/history/model.py} wants it.
 *
 * <p>Sends until its input ends, then waits until every message is acknowledged and consumed. Prints
 * a line with "acked" twice a second, and one with "ended" at the end.
 */
final class Recorded {
    private static final long PAUSE_NS = 10_000_000;
    private static final int IN_FLIGHT_MAX = 200;
    private static final int SETTLED_S = 60;
    private static final String SUBSCRIPTION = "attached";

    private final String topic;
    private final String name;
    private final OutputStream history;
    private final AtomicInteger acked = new AtomicInteger();
    private final Set<Integer> acknowledged = ConcurrentHashMap.newKeySet();
    private final Set<Integer> consumed = ConcurrentHashMap.newKeySet();
    private volatile boolean isEnded;
    private volatile boolean isConsumed;

    private Recorded(String topic, String name, OutputStream history) {
        this.topic = topic;
        this.name = name;
        this.history = history;
    }

    /** Arguments: service URL, topic, name of the producer, file of the history. */
    public static void main(String[] arguments) throws Exception {
        try (OutputStream history = new FileOutputStream(arguments[3]);
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            new Recorded(arguments[1], arguments[2], history).run(client);
        }
        System.exit(0);
    }

    private void run(PulsarClient client) throws Exception {
        record("{\"format\":\"nextgen-history\",\"version\":1}");
        Consumer<String> consumer =
                client.newConsumer(Schema.STRING).topic(topic).subscriptionName(SUBSCRIPTION)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
        Producer<String> producer =
                client.newProducer(Schema.STRING).topic(topic).producerName(name)
                        .enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create();
        daemon(this::waitForEnd);
        daemon(this::tell);
        Thread consuming = daemon(() -> consume(consumer));
        send(producer);
        waitFor(() -> consumed.containsAll(acknowledged));
        isConsumed = true;
        consuming.join();
        record("{\"record\":\"Drained\",\"consumer\":\"\"," + about() + ",\"subscription\":"
                + Context.quoted(SUBSCRIPTION) + "}");
        readAll(client);
        Context.print("{\"ended\":" + acked.get() + "}");
    }

    private void send(Producer<String> producer) throws Exception {
        Semaphore room = new Semaphore(IN_FLIGHT_MAX);
        for (int number = 0; !isEnded; number++) {
            if (!room.tryAcquire(100, TimeUnit.MILLISECONDS)) {
                number--;
                continue;
            }
            int sequence = number;
            String sent = "{\"record\":\"Publish\"," + about() + "," + of(sequence)
                    + ",\"sent_ns\":" + System.nanoTime();
            record(sent + "}");
            producer.sendAsync(String.valueOf(sequence)).whenComplete((id, failed) -> {
                if (failed == null) {
                    record(sent + ",\"acked_ns\":" + System.nanoTime() + "," + at(id) + "}");
                    acknowledged.add(sequence);
                    acked.incrementAndGet();
                }
                room.release();
            });
            LockSupport.parkNanos(PAUSE_NS);
        }
        waitFor(() -> room.availablePermits() == IN_FLIGHT_MAX);
    }

    private void consume(Consumer<String> consumer) {
        while (!isConsumed) {
            try {
                Message<String> message = consumer.receive(100, TimeUnit.MILLISECONDS);
                if (message != null) {
                    received(message, name + "-" + SUBSCRIPTION,
                            ",\"subscription\":" + Context.quoted(SUBSCRIPTION)
                                    + ",\"key\":" + Context.quoted(name));
                    consumed.add(Integer.valueOf(message.getValue()));
                    consumer.acknowledge(message);
                }
            } catch (Exception failed) {
                // Of an acknowledgement, that is: the message comes again.
                Context.print("{\"complaint\":" + Context.quoted(failed.toString()) + "}");
            }
        }
    }

    private void readAll(PulsarClient client) throws Exception {
        String reader = name + "-reader";
        try (Reader<String> all =
                client.newReader(Schema.STRING).topic(topic)
                        .startMessageId(MessageId.earliest).create()) {
            while (all.hasMessageAvailable()) {
                received(all.readNext(SETTLED_S, TimeUnit.SECONDS), reader, "");
            }
        }
        record("{\"record\":\"Drained\",\"consumer\":" + Context.quoted(reader) + "," + about()
                + "}");
    }

    private void received(Message<String> message, String consumer, String more) {
        record("{\"record\":\"Received\",\"consumer\":" + Context.quoted(consumer) + "," + about()
                + "," + of(Integer.parseInt(message.getValue())) + "," + at(message.getMessageId())
                + ",\"received_ns\":" + System.nanoTime() + more + "}");
    }

    private String about() {
        return "\"topic\":" + Context.quoted(topic);
    }

    private String of(int sequence) {
        return "\"producer\":" + Context.quoted(name) + ",\"sequence\":" + sequence;
    }

    private static String at(MessageId id) {
        MessageIdAdv place = (MessageIdAdv) id;
        return "\"ledger\":" + place.getLedgerId() + ",\"entry\":" + place.getEntryId()
                + ",\"batch_index\":" + place.getBatchIndex();
    }

    private synchronized void record(String line) {
        try {
            history.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private void waitForEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException failed) {
            // It ends likewise.
        }
        isEnded = true;
    }

    private void tell() {
        while (true) {
            Context.print("{\"acked\":" + acked.get() + "}");
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(500));
        }
    }

    private interface Condition {
        boolean holds();
    }

    private static void waitFor(Condition condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SETTLED_S);
        while (!condition.holds() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
