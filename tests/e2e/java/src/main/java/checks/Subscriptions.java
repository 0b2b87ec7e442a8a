package checks;

import static checks.Context.expect;
import static checks.Context.expectEqual;
import static checks.Context.expectNothing;
import static checks.Context.expectRefused;
import static checks.Context.numbered;
import static checks.Context.receive;
import static checks.Context.received;
import static checks.Context.send;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.ConsumerBusyException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Subscription types, acknowledgements, redelivery, seeks. */
final class Subscriptions {
    private Subscriptions() {}

    static void register(Map<String, Main.Check> checks) {
        checks.put("exclusive", Subscriptions::exclusive);
        checks.put("shared", Subscriptions::shared);
        checks.put("key shared", Subscriptions::keyShared);
        checks.put("failover", Subscriptions::failover);
        checks.put("individual acknowledgements", Subscriptions::individual);
        checks.put("acknowledgements with receipts", Subscriptions::receipts);
        checks.put("cumulative within a batch", Subscriptions::cumulativeWithinBatch);
        checks.put("seek", Subscriptions::seek);
        checks.put("redelivery", Subscriptions::redelivery);
        checks.put("acknowledgement timeout", Subscriptions::acknowledgementTimeout);
        checks.put("dead letters", Subscriptions::deadLetters);
        checks.put("delayed", Subscriptions::delayed);
        checks.put("unsubscribe", Subscriptions::unsubscribe);
    }

    private static ConsumerBuilder<String> consumer(Context context, PulsarClient client) {
        return client.newConsumer(Schema.STRING).topic(context.topic()).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private static void exclusive(Context context) throws Exception {
        Consumer<String> first = consumer(context, context.client()).subscribe();
        expectRefused(
                ConsumerBusyException.class,
                () -> consumer(context, context.client()).subscribe());
        first.close();
        consumer(context, context.client()).subscribe();
    }

    private static void shared(Context context) throws Exception {
        List<Consumer<String>> consumers = pair(context, SubscriptionType.Shared);
        send(context.producer(), numbered(0, 200));
        List<List<Message<String>>> shares = sharedOut(consumers, 200);
        Set<String> all = new HashSet<>();
        for (List<Message<String>> share : shares) {
            expect(share.size() >= 50, "one got " + share.size());
            share.forEach(message -> all.add(message.getValue()));
        }
        expectEqual(all, new HashSet<>(numbered(0, 200)));
    }

    private static void keyShared(Context context) throws Exception {
        List<Consumer<String>> consumers = pair(context, SubscriptionType.Key_Shared);
        Producer<String> producer = context.producer();
        for (int number = 0; number < 200; number++) {
            producer.newMessage().key("key-" + number % 20).value("" + number).send();
        }
        Map<String, Integer> last = new HashMap<>();
        Map<String, Integer> holder = new HashMap<>();
        List<List<Message<String>>> shares = sharedOut(consumers, 200);
        for (int place = 0; place < 2; place++) {
            expect(!shares.get(place).isEmpty(), "one consumer got nothing");
            for (Message<String> message : shares.get(place)) {
                int value = Integer.parseInt(message.getValue());
                expect(value > last.getOrDefault(message.getKey(), -1), "out of order");
                last.put(message.getKey(), value);
                expectEqual(holder.getOrDefault(message.getKey(), place), place);
                holder.put(message.getKey(), place);
            }
        }
    }

    private static List<Consumer<String>> pair(Context context, SubscriptionType kind)
            throws Exception {
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            consumers.add(
                    consumer(context, context.client()).subscriptionType(kind)
                            .receiverQueueSize(10).subscribe());
        }
        return consumers;
    }

    private static List<List<Message<String>>> sharedOut(
            List<Consumer<String>> consumers, int count) throws Exception {
        List<List<Message<String>>> shares = List.of(new ArrayList<>(), new ArrayList<>());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Context.RECEIVE_S);
        while (shares.get(0).size() + shares.get(1).size() < count) {
            expect(System.nanoTime() < deadline, "not all messages came");
            for (int place = 0; place < consumers.size(); place++) {
                Message<String> message =
                        consumers.get(place).receive(2, TimeUnit.MILLISECONDS);
                if (message != null) {
                    consumers.get(place).acknowledge(message);
                    shares.get(place).add(message);
                }
            }
        }
        return shares;
    }

    /** Tells who was told to be active, in order. */
    private static final class Turns implements ConsumerEventListener {
        final BlockingQueue<String> told = new LinkedBlockingQueue<>();

        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            told.add("active " + consumer.getConsumerName());
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            told.add("inactive " + consumer.getConsumerName());
        }
    }

    private static void failover(Context context) throws Exception {
        Turns turns = new Turns();
        Map<String, Consumer<String>> consumers = new HashMap<>();
        for (String name : List.of("a", "b")) {
            consumers.put(
                    name,
                    consumer(context, context.client()).consumerName(name)
                            .subscriptionType(SubscriptionType.Failover)
                            .consumerEventListener(turns).subscribe());
        }
        Producer<String> producer = context.producer();
        send(producer, numbered(0, 10));
        // Which of them it is, is the broker's choice.
        boolean isFirst = isServedFirst(consumers.get("a"), consumers.get("b"));
        Consumer<String> active = consumers.get(isFirst ? "a" : "b");
        Consumer<String> waiting = consumers.get(isFirst ? "b" : "a");
        expectNothing(waiting);

        active.close();

        send(producer, numbered(10, 5));
        expectEqual(received(waiting, 15), numbered(0, 15));
        String wanted = "active " + waiting.getConsumerName();
        String last = "";
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Context.RECEIVE_S);
        String told = turns.told.poll(1, TimeUnit.SECONDS);
        while (told != null || (!last.equals(wanted) && System.nanoTime() < deadline)) {
            last = told == null ? last : told;
            told = turns.told.poll(1, TimeUnit.SECONDS);
        }
        expectEqual(last, wanted);
    }

    private static boolean isServedFirst(Consumer<String> one, Consumer<String> other)
            throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Context.RECEIVE_S);
        while (true) {
            if (one.receive(100, TimeUnit.MILLISECONDS) != null) {
                return true;
            }
            if (other.receive(100, TimeUnit.MILLISECONDS) != null) {
                return false;
            }
            expect(System.nanoTime() < deadline, "neither got a message");
        }
    }

    private static void individual(Context context) throws Exception {
        send(context.producer(), numbered(0, 10));
        List<String> left = new ArrayList<>();
        Consumer<String> first =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .subscribe();
        for (int number = 0; number < 10; number++) {
            Message<String> message = receive(first);
            if (number % 3 == 0) {
                first.acknowledge(message);
            } else {
                left.add(message.getValue());
            }
        }
        first.close();
        Consumer<String> again =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .subscribe();
        expectEqual(new HashSet<>(received(again, left.size())), new HashSet<>(left));
        expectNothing(again);
    }

    private static void receipts(Context context) throws Exception {
        List<MessageId> ids = send(context.producer(), numbered(0, 10));
        Consumer<String> first =
                consumer(context, context.client()).isAckReceiptEnabled(true)
                        .subscriptionType(SubscriptionType.Shared).subscribe();
        for (int number = 0; number < 10; number++) {
            receive(first);
        }
        first.acknowledge(ids.subList(0, 5));
        first.acknowledge(ids.get(7));
        first.close();

        Consumer<String> again =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .subscribe();
        expectEqual(
                new HashSet<>(received(again, 4)),
                Set.of("message-5", "message-6", "message-8", "message-9"));
        expectNothing(again);
    }

    private static void cumulativeWithinBatch(Context context) throws Exception {
        Producer<String> producer =
                context.client().newProducer(Schema.STRING).topic(context.topic())
                        .batchingMaxPublishDelay(10, TimeUnit.SECONDS).create();
        for (int first = 0; first < 20; first += 10) {
            for (String content : numbered(first, 10)) {
                producer.sendAsync(content);
            }
            producer.flush();
        }
        Consumer<String> consumer =
                consumer(context, context.client()).enableBatchIndexAcknowledgment(true)
                        .subscribe();
        Message<String> last = null;
        for (int number = 0; number < 14; number++) {
            last = receive(consumer);
        }
        consumer.acknowledgeCumulative(last);
        consumer.close();
        Consumer<String> again =
                consumer(context, context.client()).enableBatchIndexAcknowledgment(true)
                        .subscribe();
        expectEqual(received(again, 6), numbered(14, 6));
        expectNothing(again);
    }

    private static void seek(Context context) throws Exception {
        Producer<String> producer = context.producer();
        List<MessageId> ids = send(producer, numbered(0, 10));
        Thread.sleep(2); // Publish times are milliseconds.
        long between = System.currentTimeMillis();
        Thread.sleep(2);
        ids.addAll(send(producer, numbered(10, 10)));
        Consumer<String> consumer = consumer(context, context.client()).subscribe();
        expectEqual(received(consumer, 20), numbered(0, 20));

        consumer.seek(MessageId.earliest);
        expectEqual(received(consumer, 20), numbered(0, 20));
        consumer.seek(ids.get(15));
        expectEqual(received(consumer, 4), numbered(16, 4));
        consumer.seek(between);
        expectEqual(received(consumer, 10), numbered(10, 10));
        consumer.seek(MessageId.latest);
        expectNothing(consumer);
        expectEqual(consumer.getLastMessageIds().size(), 1);
    }

    private static void redelivery(Context context) throws Exception {
        Consumer<String> consumer =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe();
        send(context.producer(), numbered(0, 3));
        Map<String, Integer> most = new HashMap<>();
        for (int number = 0; number < 9; number++) {
            Message<String> message = receive(consumer);
            most.merge(message.getValue(), message.getRedeliveryCount(), Math::max);
            if (message.getRedeliveryCount() < 2) {
                consumer.negativeAcknowledge(message);
            } else {
                consumer.acknowledge(message);
            }
        }
        expectEqual(most, Map.of("message-0", 2, "message-1", 2, "message-2", 2));
        expectNothing(consumer);
    }

    private static void acknowledgementTimeout(Context context) throws Exception {
        Consumer<String> consumer =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .ackTimeout(1, TimeUnit.SECONDS)
                        .ackTimeoutTickTime(200, TimeUnit.MILLISECONDS).subscribe();
        send(context.producer(), numbered(0, 2));
        receive(consumer);
        expectEqual(received(consumer, 1), numbered(1, 1));

        Message<String> again = receive(consumer);

        expectEqual(again.getValue(), "message-0");
        expectEqual(again.getRedeliveryCount(), 1);
        consumer.acknowledge(again);
    }

    private static void deadLetters(Context context) throws Exception {
        Consumer<String> consumer =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
                        .deadLetterPolicy(
                                DeadLetterPolicy.builder().maxRedeliverCount(2)
                                        .deadLetterTopic(context.topic() + "-dead")
                                        .initialSubscriptionName("dead").build())
                        .subscribe();
        context.producer().send("bad");
        for (int number = 0; number < 3; number++) {
            consumer.negativeAcknowledge(receive(consumer));
        }
        // The client publishes to the other topic when the message comes once more.
        expect(consumer.receive(2, TimeUnit.SECONDS) == null, "it came once more");
        Consumer<String> dead =
                context.client().newConsumer(Schema.STRING).topic(context.topic() + "-dead")
                        .subscriptionName("dead").subscribe();
        expectEqual(received(dead, 1), List.of("bad"));
    }

    private static void delayed(Context context) throws Exception {
        Consumer<String> consumer =
                consumer(context, context.client()).subscriptionType(SubscriptionType.Shared)
                        .subscribe();
        Producer<String> producer = context.producer();
        // If there is time for the first until the second is due; else again, with more.
        long firstMs = Long.MAX_VALUE;
        long dueMs = 0;
        for (int delayS = 3; firstMs >= dueMs && delayS <= 24; delayS *= 2) {
            dueMs = System.currentTimeMillis() + delayS * 1000L;
            producer.newMessage().value("second").deliverAt(dueMs).send();
            producer.newMessage().value("first").send();
            Map<String, Long> cameMs = new HashMap<>();
            for (int number = 0; number < 2; number++) {
                String value = received(consumer, 1).get(0);
                cameMs.put(value, System.currentTimeMillis());
            }
            expectEqual(cameMs.keySet(), Set.of("first", "second"));
            expect(cameMs.get("second") >= dueMs, "it came before it was due");
            firstMs = cameMs.get("first");
        }
        expect(firstMs < dueMs, "what is due at once waited for what is due later");
    }

    private static void unsubscribe(Context context) throws Exception {
        Consumer<String> consumer = consumer(context, context.client()).subscribe();
        Producer<String> producer = context.producer();
        send(producer, numbered(0, 3));
        received(consumer, 1);
        consumer.unsubscribe();

        Consumer<String> anew =
                context.client().newConsumer(Schema.STRING).topic(context.topic())
                        .subscriptionName("s").subscribe();
        send(producer, numbered(3, 1));
        expectEqual(received(anew, 1), numbered(3, 1));
    }
}
