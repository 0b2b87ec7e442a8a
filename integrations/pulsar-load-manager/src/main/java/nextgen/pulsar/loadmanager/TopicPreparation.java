package nextgen.pulsar.loadmanager;

import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.namespace.TopicExistsInfo;
import org.apache.pulsar.common.naming.TopicName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has the broker read what it will need of Pulsar's metadata for a topic that is about to move here.
 *
 * <p>Pulsar caches all of it and reads it again when it changes, so it may be read at any time before.
 * The ledger is not opened: that would fence the broker that still serves the topic.
 */
final class TopicPreparation {
    private static final Logger LOG = LoggerFactory.getLogger(TopicPreparation.class);
    private static final String MANAGED_LEDGERS = "/managed-ledgers/";

    private final PulsarService pulsar;

    TopicPreparation(PulsarService pulsar) {
        this.pulsar = pulsar;
    }

    /** Read it; what cannot be read now is read, and reported, when the topic is loaded. */
    CompletableFuture<Void> prepare(String topic) {
        TopicName name = TopicName.get(topic);
        if (!name.isPersistent()) {
            return CompletableFuture.completedFuture(null);
        }
        return CompletableFuture.allOf(
                // Policies of the namespace and of the topic.
                pulsar.getBrokerService().getManagedLedgerConfig(name),
                // Whether it exists, and whether its name is that of a partition.
                pulsar.getNamespaceService().checkTopicExistsAsync(name)
                        .thenAccept(TopicExistsInfo::recycle),
                // The names of its subscriptions.
                pulsar.getLocalMetadataStore().getChildren(
                        MANAGED_LEDGERS + name.getPersistenceNamingEncoding()),
                pulsar.getSchemaRegistryService().getSchema(name.getSchemaName()))
                .exceptionally(error -> {
                    LOG.debug("topic {} is not prepared: {}", topic, error.toString());
                    return null;
                });
    }
}
