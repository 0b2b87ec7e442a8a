package nextgen.pulsar.loadmanager;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.CloseCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Closes topics that this broker serves no more, and sends their clients to the next broker.
 *
 * <p>The same two steps as those of a bundle that Pulsar transfers: first the topic accepts nothing
 * more and closes its ledger, then its clients are told where it is. Unlike there, producers have
 * the receipts of what is being written before the ledger is closed, and positions of subscriptions
 * are written beside the end of the ledger, not after it.
 */
final class TopicMover {
    private static final Logger LOG = LoggerFactory.getLogger(TopicMover.class);

    private final BrokerService broker;
    private final PendingWrites writes;

    TopicMover(BrokerService broker, PendingWrites writes) {
        this.broker = broker;
        this.writes = writes;
    }

    /**
     * Close a topic if it is open. {@code next}: where its clients go; empty: they look it up.
     *
     * <p>They do, too, if that broker has listeners: which one a client named, it has said where it
     * looked the topic up, and that was not here. Pulsar by itself would send them to whoever has the
     * topic's bundle.
     */
    CompletableFuture<Void> close(String name, Optional<BrokerLookupData> next) {
        CompletableFuture<Optional<Topic>> opened = broker.getTopics().get(name);
        if (opened == null) {
            return CompletableFuture.completedFuture(null);
        }
        return opened.thenCompose(found -> found.isEmpty()
                ? CompletableFuture.completedFuture(null)
                : close(found.get(), next.filter(each -> !ServiceUrls.hasListeners(each))))
                .exceptionally(error -> {
                    LOG.warn("topic {} was not closed as it should: {}", name, error.toString());
                    return null;
                });
    }

    CompletableFuture<Void> close(Topic topic, Optional<BrokerLookupData> next) {
        long began = System.nanoTime();
        return receipts(topic).thenCompose(written -> {
            CompletableFuture<Void> ledger = topic.close(false, true);
            // Pulsar takes cursors that are closing for closed, and leaves them alone.
            return CompletableFuture.allOf(ledger, writePositions(topic));
        }).thenCompose(closed -> {
            long ledgerClosed = System.nanoTime();
            topic.getProducers().values().forEach(producer -> producer.disconnect(next));
            topic.getSubscriptions().values().forEach(each -> each.disconnect(next));
            LOG.info("topic {} moves to {}: ledger closed after {} ms, clients sent after {} ms",
                    topic.getName(), next.map(BrokerLookupData::pulsarServiceUrl).orElse("a broker unnamed"),
                    (ledgerClosed - began) / 1_000_000, (System.nanoTime() - began) / 1_000_000);
            return topic.close(true, true);
        });
    }

    private CompletableFuture<Void> receipts(Topic topic) {
        return topic instanceof PersistentTopic persistent
                ? writes.receipts(persistent)
                : CompletableFuture.completedFuture(null);
    }

    private static CompletableFuture<Void> writePositions(Topic topic) {
        return topic instanceof PersistentTopic persistent
                ? closeAll(persistent.getManagedLedger().getCursors())
                : CompletableFuture.completedFuture(null);
    }

    /** Close cursors side by side, which writes their positions. */
    static CompletableFuture<Void> closeAll(Iterable<ManagedCursor> cursors) {
        List<CompletableFuture<Void>> closing = new ArrayList<>();
        cursors.forEach(each -> closing.add(close(each)));
        return CompletableFuture.allOf(closing.toArray(CompletableFuture[]::new));
    }

    private static CompletableFuture<Void> close(ManagedCursor cursor) {
        CompletableFuture<Void> closed = new CompletableFuture<>();
        cursor.asyncClose(new CloseCallback() {
            @Override
            public void closeComplete(Object context) {
                closed.complete(null);
            }

            @Override
            public void closeFailed(ManagedLedgerException error, Object context) {
                // The next broker goes on from the position that was written last.
                LOG.warn("position of {} was not written: {}", cursor, error.toString());
                closed.complete(null);
            }
        }, null);
        return closed;
    }
}
