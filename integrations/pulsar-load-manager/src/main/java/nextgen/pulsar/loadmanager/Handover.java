package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Names the topics of a namespace that are open here, and closes those that others own: a namespace
 * that is handed over, or back, has topics open from before. Who owns a topic is for the load manager
 * to say, by topic or by bundle.
 */
final class Handover {
    /** Well below the limit of a line, however long the names are. */
    static final int TOPICS_PER_MESSAGE = 200;

    private static final Logger LOG = LoggerFactory.getLogger(Handover.class);

    private final PulsarService pulsar;
    private final TopicLoadManager owners;
    private final TopicMover mover;

    Handover(PulsarService pulsar, TopicLoadManager owners, TopicMover mover) {
        this.pulsar = pulsar;
        this.owners = owners;
        this.mover = mover;
    }

    /** Return the messages that answer which topics of a namespace are open here, at least one. */
    CompletableFuture<List<ObjectNode>> openTopics(long number, NamespaceName namespace) {
        List<TopicName> open = pulsar.getBrokerService().getTopics().keySet().stream()
                .map(TopicName::get)
                .filter(topic -> topic.getNamespaceObject().equals(namespace))
                .toList();
        return owners.isHandedOver(namespace).thenCompose(byTopic ->
                all(open.stream().map(this::describe).toList())
                        .thenApply(described -> pages(number, byTopic, described)));
    }

    /** Close those of these topics that others own, and send their clients there; return the answer. */
    CompletableFuture<ObjectNode> closeForeign(long number, List<String> topics) {
        return all(topics.stream().map(TopicName::get).map(this::closeForeign).toList())
                .thenApply(outcomes -> Messages.message("closed").put("number", number)
                        .put("closed", Collections.frequency(outcomes, Outcome.CLOSED))
                        .put("kept", Collections.frequency(outcomes, Outcome.KEPT))
                        .put("failed", Collections.frequency(outcomes, Outcome.FAILED)));
    }

    /** Return messages of at most {@link #TOPICS_PER_MESSAGE} topics each; the last one says so. */
    static List<ObjectNode> pages(long number, boolean byTopic, List<ObjectNode> topics) {
        List<ObjectNode> pages = new ArrayList<>();
        for (int from = 0; from == 0 || from < topics.size(); from += TOPICS_PER_MESSAGE) {
            int to = Math.min(topics.size(), from + TOPICS_PER_MESSAGE);
            ObjectNode page = Messages.message("open").put("number", number)
                    .put("by_topic", byTopic).put("last", to == topics.size());
            ArrayNode described = page.putArray("topics");
            topics.subList(from, to).forEach(described::add);
            pages.add(page);
        }
        return pages;
    }

    private CompletableFuture<ObjectNode> describe(TopicName topic) {
        return bundleOf(topic).thenCompose(bundle ->
                owners.checkOwnershipAsync(Optional.of(topic), bundle).thenApply(owned ->
                        described(topic, owned, owners.getServiceUnitStateChannel()
                                .getAssigned(bundle.toString()).orElse(""))))
                // A topic whose owner cannot be told now is nobody's: whoever asks, asks again.
                .exceptionally(error -> described(topic, false, ""));
    }

    private static ObjectNode described(TopicName topic, boolean owned, String bundleOwner) {
        ObjectNode node = Messages.object();
        return node.put("topic", topic.toString()).put("owned", owned)
                .put("bundle_owner", bundleOwner);
    }

    private CompletableFuture<Outcome> closeForeign(TopicName topic) {
        return bundleOf(topic).thenCompose(bundle -> isOwned(topic, bundle).thenCompose(owned -> owned
                ? CompletableFuture.completedFuture(Outcome.KEPT)
                : sendAway(topic, bundle))).exceptionally(error -> {
                    LOG.warn("topic {} stays open, its owner is not known: {}", topic,
                            error.toString());
                    return Outcome.FAILED;
                });
    }

    private CompletableFuture<Outcome> sendAway(TopicName topic, NamespaceBundle bundle) {
        LookupOptions options = LookupOptions.builder().authoritative(false).readOnly(false)
                .loadTopicsInBundle(false).build();
        return owners.assign(Optional.of(topic), bundle, options).thenCompose(next ->
                // It may have been nobody's, and have been assigned to this broker by the question.
                isOwned(topic, bundle).thenCompose(owned -> owned
                        ? CompletableFuture.completedFuture(Outcome.KEPT)
                        : mover.close(topic.toString(), next).thenApply(closed -> Outcome.CLOSED)));
    }

    private CompletableFuture<Boolean> isOwned(TopicName topic, NamespaceBundle bundle) {
        return owners.checkOwnershipAsync(Optional.of(topic), bundle);
    }

    private CompletableFuture<NamespaceBundle> bundleOf(TopicName topic) {
        return pulsar.getNamespaceService().getBundleAsync(topic);
    }

    private static <T> CompletableFuture<List<T>> all(List<CompletableFuture<T>> futures) {
        return CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new))
                .thenApply(done -> futures.stream().map(CompletableFuture::join).toList());
    }

    private enum Outcome { CLOSED, KEPT, FAILED }
}
