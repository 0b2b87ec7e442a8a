package checks;

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/** What a check has: a client and a topic of its own, and someone to ask. */
final class Context implements AutoCloseable {
    static final int KEYS = 20;
    private static final Duration RECEIVE = Duration.ofSeconds(30);
    private static final Duration UNANSWERED = Duration.ofSeconds(10);

    private final String local;
    private final BufferedReader answers;
    private final PulsarClient client;

    Context(String serviceUrl, String local, BufferedReader answers) throws Exception {
        this.local = local.replace(' ', '-');
        this.answers = answers;
        this.client = PulsarClient.builder().serviceUrl(serviceUrl).build();
    }

    PulsarClient client() {
        return client;
    }

    String topic() {
        return "topic://public/default/" + local;
    }

    String classicTopic() {
        return "persistent://public/default/" + local;
    }

    /** Have something done by the test that runs this program; returns what it answered. */
    String ask(String what, String topic) throws Exception {
        print("{\"ask\":" + quoted(what) + ",\"topic\":" + quoted(topic) + "}");
        String answer = answers.readLine();
        expect(answer != null && !answer.startsWith("cannot"), "the test answered " + answer);
        return answer;
    }

    Producer<String> producer(String topic) throws Exception {
        return client.newProducer(Schema.string()).topic(topic).create();
    }

    QueueConsumer<String> queue(String topic) throws Exception {
        return client.newQueueConsumer(Schema.string())
                .topic(topic)
                .subscriptionName("queue")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe();
    }

    StreamConsumer<String> stream(String topic) throws Exception {
        return client.newStreamConsumer(Schema.string())
                .topic(topic)
                .subscriptionName("stream")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe();
    }

    /** Send numbers from {@code first} on, each with one of the keys. */
    static void send(Producer<String> producer, int first, int count) throws Exception {
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            sent.add(send(producer, "key-" + number % KEYS, number));
        }
        for (CompletableFuture<?> each : sent) {
            each.get();
        }
    }

    /**
     * Send one message. A layout that comes between the client's choice of a segment and its look for
     * the segment's producer fails the message, unsent: it is sent again. So is one that the client
     * left in the batch of a producer that it closed meanwhile, which it never answers; with a stock
     * broker, too.
     */
    static CompletableFuture<Void> send(Producer<String> producer, String key, int number) {
        return producer.async()
                .newMessage()
                .key(key)
                .value(String.valueOf(number))
                .send()
                .orTimeout(UNANSWERED.toMillis(), TimeUnit.MILLISECONDS)
                .handle((id, error) -> error)
                .thenCompose(
                        error -> {
                            if (error == null) {
                                return CompletableFuture.completedFuture(null);
                            }
                            boolean isUnsent =
                                    error instanceof TimeoutException
                                            || story(error).contains("not found in active segments");
                            return isUnsent
                                    ? send(producer, key, number)
                                    : CompletableFuture.failedFuture(error);
                        });
    }

    /** Numbers received, by key: each once and ascending. */
    static final class Received {
        private final Map<String, Integer> last = new HashMap<>();
        int count;

        void add(Message<String> message) {
            String key = message.key().orElse("");
            int number = Integer.parseInt(message.value());
            Integer before = last.put(key, number);
            int expected = before == null ? Integer.parseInt(key.substring(4)) : before + KEYS;
            expect(number == expected, key + ": " + number + " after " + before);
            count++;
        }
    }

    /** Receive and acknowledge so many messages, in the order of each key. */
    static void receive(QueueConsumer<String> consumer, int count, Received received)
            throws Exception {
        for (int number = 0; number < count; number++) {
            Message<String> message = consumer.receive(RECEIVE);
            expect(message != null, "only " + received.count + " messages came");
            received.add(message);
            consumer.acknowledge(message.id());
        }
    }

    /** Show a time that depends on the machine, and is not judged. */
    static void measured(String what, long ms) {
        print("{\"measured\":" + quoted(what) + ",\"ms\":" + ms + "}");
    }

    static void expect(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static synchronized void print(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    static String story(Throwable failed) {
        StringBuilder text = new StringBuilder();
        for (Throwable at = failed; at != null && at != at.getCause(); at = at.getCause()) {
            text.append(text.length() == 0 ? "" : " because of ").append(at);
        }
        for (StackTraceElement place : failed.getStackTrace()) {
            if (place.getClassName().startsWith("checks.")) {
                text.append(" at ").append(place.getFileName()).append(':');
                text.append(place.getLineNumber());
            }
        }
        return text.toString();
    }

    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                json.append('\\').append(each);
            } else if (each < ' ') {
                json.append(String.format("\\u%04x", (int) each));
            } else {
                json.append(each);
            }
        }
        return json.append('"').toString();
    }

    @Override
    public void close() throws Exception {
        client.close();
    }
}
