package nextgen.pulsar.loadmanager;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hears from Pulsar's metadata stores which topics are deleted, whoever does it: an operator at any
 * broker, or Pulsar itself because nobody uses them. A topic with partitions ends with its entry in
 * the configuration store, not with its partitions.
 */
final class DeletedTopics implements Consumer<Notification> {
    static final int UNTOLD_MAX = 10_000;

    private static final Logger LOG = LoggerFactory.getLogger(DeletedTopics.class);
    private static final Pattern STORED =
            Pattern.compile("(/managed-ledgers|/admin/partitioned-topics)/([^/]+/[^/]+/persistent/[^/]+)");
    private static final String LEDGERS = "/managed-ledgers";
    private static final int PAGE_TOPICS_MAX = 500;

    private final Predicate<String> isOurs;
    private final Function<String, CompletableFuture<Boolean>> exists;
    private final BlockingQueue<String> untold = new ArrayBlockingQueue<>(UNTOLD_MAX);

    /**
     * {@code isOurs}: whether this broker is to report a topic. {@code exists}: whether it is there
     * (again).
     */
    DeletedTopics(Predicate<String> isOurs, Function<String, CompletableFuture<Boolean>> exists) {
        this.isOurs = isOurs;
        this.exists = exists;
    }

    @Override
    public void accept(Notification notification) {
        if (notification.getType() == NotificationType.Deleted) {
            topicOf(notification.getPath()).filter(isOurs).ifPresent(topic ->
                    exists.apply(topic).thenAccept(isThere -> {
                        if (!isThere && !untold.offer(topic)) {
                            LOG.warn("more than {} topics were deleted while no sidecar was there: "
                                    + "the cluster does not hear of {}", UNTOLD_MAX, topic);
                        }
                    }));
        }
    }

    /** Return up to a message's worth of topics that are still to be reported, and forget them. */
    List<String> take() {
        List<String> topics = new ArrayList<>();
        untold.drainTo(topics, PAGE_TOPICS_MAX);
        return topics;
    }

    /** Report these again, later: nobody was there. */
    void putBack(List<String> topics) {
        topics.forEach(untold::offer);
    }

    /** Return the topic that ends with an entry of a metadata store, if one does. */
    static Optional<String> topicOf(String path) {
        Matcher found = STORED.matcher(path);
        if (!found.matches()) {
            return Optional.empty();
        }
        String topic = TopicName.fromPersistenceNamingEncoding(found.group(2));
        boolean isPartition = TopicName.getPartitionIndex(topic) >= 0;
        return isPartition && found.group(1).equals(LEDGERS) ? Optional.empty() : Optional.of(topic);
    }
}
