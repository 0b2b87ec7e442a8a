package checks;

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;

/** What a check has: a client of its own, a topic of its own, and someone to ask. */
final class Context implements AutoCloseable {
    static final int RECEIVE_S = 30;

    private final String serviceUrl;
    private final String prefix;
    private final BufferedReader answers;
    private PulsarClient client;
    private String name = "";

    Context(String serviceUrl, String prefix, BufferedReader answers) {
        this.serviceUrl = serviceUrl;
        this.prefix = prefix;
        this.answers = answers;
    }

    Context forCheck(String checkName) throws Exception {
        Context own = new Context(serviceUrl, prefix, answers);
        own.name = checkName;
        own.client = newClient();
        return own;
    }

    PulsarClient newClient() throws Exception {
        return PulsarClient.builder().serviceUrl(serviceUrl).build();
    }

    PulsarClient client() {
        return client;
    }

    String serviceUrl() {
        return serviceUrl;
    }

    String topic() {
        return "persistent://public/default/" + prefix + name.replace(' ', '-');
    }

    /** Have something done by the test that runs this program; returns what it answered. */
    String ask(String what, String topic) throws Exception {
        print("{\"ask\":" + quoted(what) + ",\"topic\":" + quoted(topic) + "}");
        String answer = answers.readLine();
        expect(answer != null && !answer.startsWith("cannot"), "the test answered " + answer);
        return answer;
    }

    Producer<String> producer() throws Exception {
        return producerBuilder().create();
    }

    ProducerBuilder<String> producerBuilder() {
        return client.newProducer(Schema.STRING).topic(topic()).enableBatching(false);
    }

    static List<String> numbered(int first, int count) {
        List<String> contents = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            contents.add("message-" + number);
        }
        return contents;
    }

    static List<MessageId> send(Producer<String> producer, List<String> contents)
            throws Exception {
        List<MessageId> ids = new ArrayList<>();
        for (String content : contents) {
            ids.add(producer.send(content));
        }
        return ids;
    }

    static <T> Message<T> receive(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(RECEIVE_S, TimeUnit.SECONDS);
        expect(message != null, "a message did not come");
        return message;
    }

    /** The values of the next messages, each acknowledged. */
    static <T> List<T> received(Consumer<T> consumer, int count) throws Exception {
        List<T> values = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message<T> message = receive(consumer);
            values.add(message.getValue());
            consumer.acknowledge(message);
        }
        return values;
    }

    static List<String> readAll(Reader<String> reader) throws Exception {
        List<String> values = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<String> message = reader.readNext(RECEIVE_S, TimeUnit.SECONDS);
            expect(message != null, "a message that is available did not come");
            values.add(message.getValue());
        }
        return values;
    }

    static void expectNothing(Consumer<?> consumer) throws Exception {
        Message<?> message = consumer.receive(300, TimeUnit.MILLISECONDS);
        expect(message == null, "a message came that should not");
    }

    static void expect(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void expectEqual(Object found, Object expected) {
        expect(
                expected == null ? found == null : expected.equals(found),
                "found " + found + ", expected " + expected);
    }

    interface Action {
        void run() throws Exception;
    }

    static void expectRefused(Class<? extends Exception> kind, Action action) {
        try {
            action.run();
        } catch (Exception refused) {
            Throwable cause = refused;
            while (cause != null && !kind.isInstance(cause)) {
                cause = cause.getCause();
            }
            expect(cause != null, "refused by " + story(refused));
            return;
        }
        throw new AssertionError("was not refused");
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
        StringBuilder out = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\' || character < ' ' || character > '~') {
                out.append(String.format("\\u%04x", (int) character));
            } else {
                out.append(character);
            }
        }
        return out.append('"').toString();
    }

    /** Does not wait: a client takes two seconds to end its threads. */
    @Override
    public void close() {
        client.closeAsync();
    }
}
