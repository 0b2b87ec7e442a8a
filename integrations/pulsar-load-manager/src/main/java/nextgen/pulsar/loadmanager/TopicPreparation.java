package nextgen.pulsar.loadmanager;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ManagedLedgerInfoCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerInfo;
import org.apache.bookkeeper.util.StringUtils;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.namespace.TopicExistsInfo;
import org.apache.pulsar.common.naming.TopicName;
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
        String ledgers = name.getPersistenceNamingEncoding();
        CompletableFuture<Optional<Coming>> coming = pulsar.getBrokerService()
                // Reads policies of the namespace and of the topic.
                .getManagedLedgerFactoryForTopic(name)
                .thenCompose(factory -> {
                    CompletableFuture<ManagedLedgerInfo> info = new CompletableFuture<>();
                    factory.asyncGetManagedLedgerInfo(ledgers, new InfoCallback(info), null);
                    return info;
                })
                .thenCompose(info -> whatIsOpen(ledgers, info));
        return CompletableFuture.allOf(
                coming,
                // Whether it exists, and whether its name is that of a partition.
                pulsar.getNamespaceService().checkTopicExistsAsync(name)
                        .thenAccept(TopicExistsInfo::recycle),
                pulsar.getSchemaRegistryService().getSchema(name.getSchemaName()))
                .thenCompose(all -> coming)
                .exceptionally(error -> {
                    LOG.debug("topic {} is not prepared: {}", topic, error.toString());
                    return Optional.empty();
                });
    }

    private CompletableFuture<Optional<Coming>> whatIsOpen(String ledgers, ManagedLedgerInfo info) {
        if (info.ledgers.isEmpty()) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        long last = info.ledgers.get(info.ledgers.size() - 1).ledgerId;
        // BookKeeper caches it, and reads it again at once when its owner closes it.
        return pulsar.getBookKeeperClient().getLedgerMetadata(last).thenApply(metadata ->
                metadata.isClosed() ? Optional.empty() : Optional.of(coming(ledgers, info, last)));
    }

    private static Coming coming(String ledgers, ManagedLedgerInfo info, long last) {
        Set<String> written = new HashSet<>(
                List.of(LEDGERS + StringUtils.getHybridHierarchicalLedgerPath(last)));
        info.cursors.keySet().forEach(each -> written.add(MANAGED_LEDGERS + ledgers + "/" + each));
        return new Coming(info.properties == null ? Map.of() : info.properties, written);
    }

    private record InfoCallback(CompletableFuture<ManagedLedgerInfo> answer)
            implements ManagedLedgerInfoCallback {
        @Override
        public void getInfoComplete(ManagedLedgerInfo info, Object context) {
            answer.complete(info);
        }

        @Override
        public void getInfoFailed(ManagedLedgerException error, Object context) {
            answer.completeExceptionally(error);
        }
    }
}
