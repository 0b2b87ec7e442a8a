package checks;

import static checks.Context.expect;

import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/** Consuming all topics of a namespace that have a property, while they come and go. */
final class Namespaces {
    private static final String NAMESPACE = "public/default";
    private static final int MESSAGES = 20;

    private Namespaces() {}

    /** Receives one message and acknowledges it; null if none came. */
    private interface Receiver {
        String receive(Duration wait) throws Exception;
    }

    static void queue(Context context) throws Exception {
        prepare(context);
        try (QueueConsumer<String> consumer =
                context.client()
                        .newQueueConsumer(Schema.string())
                        .namespace(NAMESPACE, filter(context))
                        .subscriptionName("all")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe()) {
            follow(
                    context,
                    wait -> {
                        Message<String> message = consumer.receive(wait);
                        if (message == null) {
                            return null;
                        }
                        consumer.acknowledge(message.id());
                        return message.value();
                    });
        }
    }

    static void stream(Context context) throws Exception {
        prepare(context);
        try (StreamConsumer<String> consumer =
                context.client()
                        .newStreamConsumer(Schema.string())
                        .namespace(NAMESPACE, filter(context))
                        .subscriptionName("all")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe()) {
            follow(
                    context,
                    wait -> {
                        Message<String> message = consumer.receive(wait);
                        if (message == null) {
                            return null;
                        }
                        consumer.acknowledgeCumulative(message.id());
                        return message.value();
                    });
        }
    }

    private static Map<String, String> filter(Context context) {
        return Map.of("for", "consumers", "check", context.topic());
    }

    private static void prepare(Context context) throws Exception {
        for (int number = 1; number <= 2; number++) {
            context.ask("create with 4 segments", context.topic() + "/" + number);
        }
        context.ask("give it properties", context.topic() + "/1");
    }

    private static void follow(Context context, Receiver receiver) throws Exception {
        String one = context.topic() + "/1";
        String other = context.topic() + "/2";
        String third = context.topic() + "/3";
        sent(context, one, "first");
        received(receiver, one, "first");

        context.ask("give it properties", other);
        sent(context, other, "entered");
        received(receiver, other, "entered");

        context.ask("take its properties", one);
        context.ask("nobody consumes it", one);
        sent(context, one, "meanwhile");
        context.ask("create with 4 segments", third);
        context.ask("give it properties", third);
        sent(context, third, "created");
        received(receiver, third, "created");
        context.ask("give it properties", one);
        received(receiver, one, "meanwhile");

        context.ask("delete for good", other);
        context.ask("restart discovery", one);
        sent(context, third, "later");
        received(receiver, third, "later");
        context.ask("create with 4 segments", other);
        context.ask("give it properties", other);
        sent(context, other, "anew");
        received(receiver, other, "anew");
        expect(receiver.receive(Duration.ofMillis(300)) == null, "a message came again");
    }

    private static void sent(Context context, String topic, String what) throws Exception {
        try (Producer<String> producer = context.producer(topic)) {
            for (int number = 0; number < MESSAGES; number++) {
                producer.newMessage().key("key-" + number).value(topic + what + number).send();
            }
        }
    }

    /**
     * Receive all of these messages and no others. One may come again: the end of its connection,
     * as when discovery restarts, may be faster than its acknowledgement.
     */
    private static void received(Receiver receiver, String topic, String what) throws Exception {
        Set<String> wanted = new HashSet<>();
        for (int number = 0; number < MESSAGES; number++) {
            wanted.add(topic + what + number);
        }
        Set<String> missing = new HashSet<>(wanted);
        while (!missing.isEmpty()) {
            String value = receiver.receive(Duration.ofSeconds(30));
            expect(value != null, missing.size() + " messages of " + what + " did not come");
            expect(wanted.contains(value), "not expected now: " + value);
            missing.remove(value);
        }
    }
}
