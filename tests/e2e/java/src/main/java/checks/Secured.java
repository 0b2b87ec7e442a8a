package checks;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/**
 * Does one thing for each line of its input, "what, topic, token, patience" with tabs between, and
 * prints a JSON line with what went wrong. An empty token: the client proves nothing.
 */
public final class Secured {
    private static final String CONTENT = "hello";

    private final String serviceUrl;
    private final String authorityFile;
    private final Map<String, Producer<String>> held = new HashMap<>();

    private Secured(String serviceUrl, String authorityFile) {
        this.serviceUrl = serviceUrl;
        this.authorityFile = authorityFile;
    }

    /** Arguments: service URL, file with the certificate of the authority. */
    public static void main(String[] arguments) throws Exception {
        Secured secured = new Secured(arguments[0], arguments[1]);
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            String error = "";
            try {
                secured.run(parts[0], parts[1], parts[2], Integer.parseInt(parts[3]));
            } catch (Exception failed) {
                error = Context.story(failed);
            }
            Context.print("{\"error\":" + Context.quoted(error) + "}");
        }
        System.exit(0);
    }

    private void run(String what, String topic, String token, int patienceS)
            throws Exception {
        switch (what) {
            case "produce" -> {
                try (PulsarClient client = client(token, patienceS)) {
                    producer(client, topic, patienceS).send(CONTENT);
                }
            }
            case "consume" -> {
                try (PulsarClient client = client(token, patienceS)) {
                    consume(client, topic);
                }
            }
            case "hold" -> {
                held.put(topic, producer(client(token, patienceS), topic, patienceS));
                held.get(topic).send(CONTENT);
            }
            case "send" -> held.get(topic).send(CONTENT);
            default -> throw new IllegalArgumentException(what);
        }
    }

    private PulsarClient client(String token, int patienceS) throws Exception {
        ClientBuilder builder =
                PulsarClient.builder()
                        .serviceUrl(serviceUrl)
                        .tlsTrustCertsFilePath(authorityFile)
                        .enableTlsHostnameVerification(true)
                        .lookupTimeout(patienceS, TimeUnit.SECONDS)
                        .operationTimeout(patienceS, TimeUnit.SECONDS);
        if (!token.isEmpty()) {
            builder.authentication(AuthenticationFactory.token(token));
        }
        return builder.build();
    }

    private static Producer<String> producer(PulsarClient client, String topic, int patienceS)
            throws Exception {
        return client.newProducer(Schema.STRING)
                .topic(topic)
                .enableBatching(false)
                .sendTimeout(patienceS, TimeUnit.SECONDS)
                .create();
    }

    private static void consume(PulsarClient client, String topic) throws Exception {
        try (Consumer<String> consumer =
                client.newConsumer(Schema.STRING)
                        .topic(topic)
                        .subscriptionName("all")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            Message<String> message = consumer.receive(Context.RECEIVE_S, TimeUnit.SECONDS);
            Context.expect(message != null, "no message came");
            Context.expectEqual(message.getValue(), CONTENT);
            consumer.acknowledge(message);
        }
    }
}
