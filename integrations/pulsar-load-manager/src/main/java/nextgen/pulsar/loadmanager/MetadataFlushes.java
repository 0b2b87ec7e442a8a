package nextgen.pulsar.loadmanager;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.impl.DualMetadataStore;
import org.apache.pulsar.metadata.impl.batching.AbstractBatchedMetadataStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends operations to Pulsar's metadata store at once while a few topics move.
 *
 * <p>Pulsar collects them for {@code metadataStoreBatchingMaxDelayMillis}, 5 by default. A move is a
 * chain of them, one behind the other, and its producer waits for all. With many moves at a time
 * batches are worth more than the delay (ADR 0193).
 */
final class MetadataFlushes {
    /** Topics that move at a time. Beyond, batches are left to Pulsar. */
    static final int MOVES_MAX = 8;

    /** A move takes a tenth of a second. One that hangs is not worth the requests. */
    static final long MOVE_MS_MAX = 1_000;

    private static final Logger LOG = LoggerFactory.getLogger(MetadataFlushes.class);
    private static final long PERIOD_MS = 1;

    private final Runnable flush;
    private final ScheduledExecutorService thread;
    private int moves;
    private ScheduledFuture<?> flushing;

    MetadataFlushes(Runnable flush, ScheduledExecutorService thread) {
        this.flush = flush;
        this.thread = thread;
    }

    /** Flush until a move has ended. */
    void during(CompletableFuture<?> move) {
        begin();
        move.copy().orTimeout(MOVE_MS_MAX, TimeUnit.MILLISECONDS)
                .whenComplete((done, error) -> end());
    }

    private synchronized void begin() {
        moves++;
        if (flushing == null) {
            flushing = thread.scheduleWithFixedDelay(
                    this::flushFew, 0, PERIOD_MS, TimeUnit.MILLISECONDS);
        }
    }

    private synchronized void end() {
        moves--;
        if (moves == 0) {
            flushing.cancel(false);
            flushing = null;
        }
    }

    private void flushFew() {
        if (areFew()) {
            flush.run();
        }
    }

    private synchronized boolean areFew() {
        return moves <= MOVES_MAX;
    }

    /** Return what flushes a store. {@code collects}: whether it is configured to collect anything. */
    static Runnable of(MetadataStore store, boolean collects) {
        MetadataStore collecting = store instanceof DualMetadataStore dual ? dual.getSourceStore() : store;
        if (!collects || !(collecting instanceof AbstractBatchedMetadataStore)) {
            return () -> { };
        }
        try {
            Method flush = flushOfPulsar();
            return () -> call(flush, collecting);
        } catch (NoSuchMethodException e) {
            LOG.warn("moves wait for batches of the metadata store: {}", e.toString());
            return () -> { };
        }
    }

    /** Pulsar's own, which any thread may call: whoever adds to a full batch does. It is not public. */
    static Method flushOfPulsar() throws NoSuchMethodException {
        Method flush = AbstractBatchedMetadataStore.class.getDeclaredMethod("flush");
        flush.setAccessible(true);
        return flush;
    }

    private static void call(Method flush, MetadataStore store) {
        try {
            flush.invoke(store);
        } catch (IllegalAccessException | InvocationTargetException e) {
            LOG.debug("the metadata store was not flushed", e);
        }
    }
}
