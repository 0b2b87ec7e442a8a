package nextgen.pulsar.loadmanager;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import nextgen.pulsar.loadmanager.TopicPreparation.Coming;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;

/**
 * Loads a topic that moves here the moment its former broker has closed it, not when its clients come.
 *
 * <pre>prepared ─▶ assigned ─▶ the former broker's last writes to the metadata store ─▶ load</pre>
 *
 * <p>These writes are the end of its ledger and of the positions of its subscriptions. Whoever misses
 * one of them loses time only: clients have the topic loaded as well. Whoever takes another one for it
 * loads too early: BookKeeper fences the former broker (ADR 0178).
 */
final class TopicArrivals implements Consumer<Notification> {
    /** Far more than move at a time. */
    static final int EXPECTED_MAX = 1_000;

    /** A move takes a second. */
    private static final Duration EXPECTED_FOR = Duration.ofSeconds(30);

    private final BiConsumer<String, Map<String, String>> load;
    private final Map<String, CompletableFuture<Optional<Coming>>> prepared;
    private final Map<String, Arrival> awaited;

    /** {@code load}: is given the topic and the properties of its managed ledger. */
    TopicArrivals(BiConsumer<String, Map<String, String>> load) {
        this.load = load;
        prepared = TopicArrivals.<CompletableFuture<Optional<Coming>>>bounded(EXPECTED_MAX).asMap();
        // A topic has a ledger and some subscriptions.
        awaited = TopicArrivals.<Arrival>bounded(EXPECTED_MAX * 10).asMap();
    }

    /** Note a topic that will be assigned to this broker; {@code found}: what is read of it. */
    void expect(String topic, CompletableFuture<Optional<Coming>> found) {
        prepared.put(topic, found);
    }

    /**
     * Note that a topic is this broker's. Its former one closes it later: what it wrote before, such
     * as the end of a full ledger, does not count.
     */
    void assigned(String topic) {
        CompletableFuture<Optional<Coming>> found = prepared.remove(topic);
        if (found != null) {
            found.thenAccept(open -> open.ifPresent(coming -> await(topic, coming)));
        }
    }

    private void await(String topic, Coming coming) {
        Arrival arrival = new Arrival(topic, coming.properties(), ConcurrentHashMap.newKeySet());
        arrival.unwritten.addAll(coming.written());
        coming.written().forEach(path -> awaited.put(path, arrival));
    }

    @Override
    public void accept(Notification notification) {
        boolean isSubscriptionRemoved = notification.getType() == NotificationType.Deleted
                && notification.getPath().startsWith(TopicPreparation.MANAGED_LEDGERS);
        if (notification.getType() != NotificationType.Modified && !isSubscriptionRemoved) {
            return;
        }
        Arrival arrival = awaited.remove(notification.getPath());
        if (arrival != null && arrival.unwritten.remove(notification.getPath())
                && arrival.unwritten.isEmpty()) {
            load.accept(arrival.topic, arrival.properties);
        }
    }

    private static <T> Cache<String, T> bounded(int most) {
        return Caffeine.newBuilder().maximumSize(most).expireAfterWrite(EXPECTED_FOR).build();
    }

    private record Arrival(String topic, Map<String, String> properties, Set<String> unwritten) { }
}
