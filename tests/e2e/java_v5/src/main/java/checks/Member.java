package checks;

import java.lang.reflect.Method;
import java.time.Duration;
import java.time.Instant;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * A member of a group, in a process of its own that can be killed. Prints key, number, segment and
 * time of each message, and acknowledges it; leaves at the end of its input.
 */
final class Member {
    private static volatile boolean isLeaving;

    private Member() {}

    /** Arguments: service URL, topic, subscription, name. */
    public static void main(String[] arguments) throws Exception {
        Thread waiting =
                new Thread(
                        () -> {
                            try {
                                while (System.in.read() >= 0) {}
                            } catch (Exception error) {
                                // It ends likewise.
                            }
                            isLeaving = true;
                        });
        waiting.setDaemon(true);
        waiting.start();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                StreamConsumer<String> consumer =
                        client.newStreamConsumer(Schema.string())
                                .topic(arguments[1])
                                .subscriptionName(arguments[2])
                                .consumerName(arguments[3])
                                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                                .subscribe()) {
            while (!isLeaving) {
                Message<String> message = consumer.receive(Duration.ofMillis(100));
                if (message != null) {
                    Instant now = Instant.now();
                    long at = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
                    String key = message.key().orElse("");
                    Context.print(
                            "[" + key.substring(4) + "," + message.value() + ","
                                    + segmentOf(message.id()) + "," + at + "]");
                    consumer.acknowledgeCumulative(message.id());
                }
            }
        }
        System.exit(0);
    }

    /** The client does not show it to programs. */
    private static long segmentOf(MessageId id) throws Exception {
        Method segment = id.getClass().getDeclaredMethod("segmentId");
        segment.setAccessible(true);
        return (Long) segment.invoke(id);
    }
}
