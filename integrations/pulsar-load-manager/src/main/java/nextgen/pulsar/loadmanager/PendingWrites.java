package nextgen.pulsar.loadmanager;

import java.lang.reflect.Field;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.pulsar.broker.service.AbstractTopic;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has producers get the receipts of what is being written, before their topic is closed.
 *
 * <p>Pulsar forgets whom it owes receipts when it closes a ledger, and BookKeeper closes it behind
 * the messages that it has taken by then. What it has taken in between is stored, and its producer
 * sends it again (ADR 0194).
 */
final class PendingWrites {
    /** A write takes milliseconds. What a bookie has not taken by then, the next broker is sent. */
    static final long WAIT_MS_MAX = 1_000;

    private static final Logger LOG = LoggerFactory.getLogger(PendingWrites.class);
    private static final long PERIOD_MS = 1;

    private final ScheduledExecutorService timer;

    PendingWrites(ScheduledExecutorService timer) {
        this.timer = timer;
    }

    /**
     * Have a topic take no more messages; return when all that it took have their receipts, or it has
     * waited for a second.
     *
     * <p>The topic does not serve from now on, and has to be closed. Receipts are in the queues of
     * their connections: what is said to clients afterwards comes behind them.
     */
    CompletableFuture<Void> receipts(PersistentTopic topic) {
        if (!takesNoMore(topic)) {
            return CompletableFuture.completedFuture(null);
        }
        long began = System.nanoTime();
        // A thread that began with a message before it could know of this has counted it then.
        CompletableFuture<?>[] read = topic.getProducers().values().stream()
                .map(each -> CompletableFuture.runAsync(() -> { }, each.getCnx()::execute))
                .toArray(CompletableFuture[]::new);
        return CompletableFuture.allOf(read)
                .exceptionally(unreachable -> null)
                .completeOnTimeout(null, WAIT_MS_MAX, TimeUnit.MILLISECONDS)
                .thenCompose(all -> none(topic.getPendingWriteOps()::get, topic.getName(), began));
    }

    /** Return when nothing is being written, or that has taken too long since it began. */
    CompletableFuture<Void> none(LongSupplier pending, String topic, long began) {
        CompletableFuture<Void> none = new CompletableFuture<>();
        look(pending, topic, began, none);
        return none;
    }

    private void look(LongSupplier pending, String topic, long began, CompletableFuture<Void> none) {
        long left = pending.getAsLong();
        long waitedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        if (left > 0 && waitedMs < WAIT_MS_MAX) {
            timer.schedule(() -> look(pending, topic, began, none), PERIOD_MS, TimeUnit.MILLISECONDS);
            return;
        }
        if (left > 0) {
            LOG.warn("topic {} is closed after {} ms with {} messages unwritten, some may be stored twice",
                    topic, waitedMs, left);
        }
        none.complete(null);
    }

    /**
     * Have connections pass over further messages of the topic, as while Pulsar transfers a bundle.
     * Their clients have them still, and send them to the next broker.
     */
    private static boolean takesNoMore(PersistentTopic topic) {
        try {
            transferringOfPulsar().setBoolean(topic, true);
            return true;
        } catch (NoSuchFieldException | IllegalAccessException e) {
            LOG.warn("topic {} is closed without a wait for receipts: {}", topic.getName(), e.toString());
            return false;
        }
    }

    /** Pulsar's own, which it sets when it closes a topic and keeps its clients. It is not public. */
    static Field transferringOfPulsar() throws NoSuchFieldException {
        Field transferring = AbstractTopic.class.getDeclaredField("transferring");
        transferring.setAccessible(true);
        return transferring;
    }
}
