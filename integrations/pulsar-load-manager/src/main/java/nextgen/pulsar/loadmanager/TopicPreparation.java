package nextgen.pulsar.loadmanager;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactory;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.bookkeeper.mledger.impl.MetaStore;
import org.apache.bookkeeper.mledger.proto.KeyValue;
import org.apache.bookkeeper.mledger.proto.ManagedLedgerInfo;
import org.apache.bookkeeper.util.StringUtils;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.namespace.TopicExistsInfo;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.metadata.api.Stat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has the broker read what it will need of Pulsar's metadata for a topic that is about to move here.
 *
 * <p>Pulsar caches most of it and reads it again when it changes, so it may be read at any time before.
 * The ledger is not opened: that would fence the broker that still serves the topic.
 */
final class TopicPreparation {
    static final String MANAGED_LEDGERS = "/managed-ledgers/";

    private static final Logger LOG = LoggerFactory.getLogger(TopicPreparation.class);

    /** Where BookKeeper has them unless an operator moved them; moves just take longer there. */
    private static final String LEDGERS = "/ledgers";

    private final PulsarService pulsar;

    TopicPreparation(PulsarService pulsar) {
        this.pulsar = pulsar;
    }

    /**
     * A topic that is open at another broker.
     *
     * @param properties of its managed ledger
     * @param written what its broker writes in the metadata store when it closes the topic
     */
    record Coming(Map<String, String> properties, Set<String> written) { }

    /**
     * Read it. Return the topic if another broker has it open, later.
     *
     * <p>What cannot be read now is read, and reported, when the topic is loaded.
     */
    CompletableFuture<Optional<Coming>> prepare(String topic) {
        TopicName name = TopicName.get(topic);
        if (!name.isPersistent()) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        // Whether it exists, and whether its name is that of a partition.
        pulsar.getNamespaceService().checkTopicExistsAsync(name).thenAccept(TopicExistsInfo::recycle)
                .exceptionally(error -> unprepared(topic, error));
        pulsar.getSchemaRegistryService().getSchema(name.getSchemaName()).<Void>thenApply(read -> null)
                .exceptionally(error -> unprepared(topic, error));
        return whatIsOpen(name).exceptionally(error -> {
            unprepared(topic, error);
            return Optional.empty();
        });
    }

    private static Void unprepared(String topic, Throwable error) {
        LOG.debug("topic {} is not prepared: {}", topic, error.toString());
        return null;
    }

    private CompletableFuture<Optional<Coming>> whatIsOpen(TopicName name) {
        String path = MANAGED_LEDGERS + name.getPersistenceNamingEncoding();
        // A move takes some thirty milliseconds: what can be is read side by side.
        CompletableFuture<List<String>> subscriptions = pulsar.getLocalMetadataStore().getChildren(path);
        return pulsar.getBrokerService()
                // Reads policies of the namespace and of the topic.
                .getManagedLedgerFactoryForTopic(name)
                .thenCompose(factory -> read(factory, name))
                .thenCompose(stored -> stored.last < 0
                        ? CompletableFuture.completedFuture(Optional.empty())
                        // BookKeeper caches it, and reads it again at once when its owner closes it.
                        : pulsar.getBookKeeperClient().getLedgerMetadata(stored.last)
                                .thenCombine(subscriptions, (metadata, names) -> metadata.isClosed()
                                        ? Optional.empty()
                                        : Optional.of(coming(path, stored, names))));
    }

    private static Coming coming(String path, Stored stored, List<String> subscriptions) {
        Set<String> written = new HashSet<>(
                List.of(LEDGERS + StringUtils.getHybridHierarchicalLedgerPath(stored.last)));
        subscriptions.forEach(each -> written.add(path + "/" + each));
        return new Coming(stored.properties, written);
    }

    private static CompletableFuture<Stored> read(ManagedLedgerFactory factory, TopicName name) {
        CompletableFuture<Stored> found = new CompletableFuture<>();
        if (factory instanceof ManagedLedgerFactoryImpl known) {
            known.getMetaStore().getManagedLedgerInfo(
                    name.getPersistenceNamingEncoding(), false, new Reading(found));
        } else {
            found.completeExceptionally(new UnsupportedOperationException("it is not BookKeeper's"));
        }
        return found;
    }

    /** What is stored of a managed ledger. {@code last}: its last ledger, -1: it has none. */
    private record Stored(long last, Map<String, String> properties) { }

    private record Reading(CompletableFuture<Stored> found)
            implements MetaStore.MetaStoreCallback<ManagedLedgerInfo> {
        @Override
        public void operationComplete(ManagedLedgerInfo info, Stat version) {
            int ledgers = info.getLedgerInfosCount();
            Map<String, String> properties = new HashMap<>();
            for (int number = 0; number < info.getPropertiesCount(); number++) {
                KeyValue property = info.getPropertyAt(number);
                properties.put(property.getKey(), property.getValue());
            }
            found.complete(new Stored(
                    ledgers == 0 ? -1 : info.getLedgerInfoAt(ledgers - 1).getLedgerId(), properties));
        }

        @Override
        public void operationFailed(ManagedLedgerException.MetaStoreException error) {
            found.completeExceptionally(error);
        }
    }
}
