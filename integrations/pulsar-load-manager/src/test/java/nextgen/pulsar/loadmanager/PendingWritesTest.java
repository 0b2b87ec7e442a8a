package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class PendingWritesTest {
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    private final PendingWrites writes = new PendingWrites(timer);
    private final AtomicLong pending = new AtomicLong();

    @AfterEach
    void end() {
        timer.shutdownNow();
    }

    @Test
    void aTopicIsClosedWhenEverythingIsWritten() throws Exception {
        pending.set(2);
        CompletableFuture<Void> none = writes.none(pending::get, "t", System.nanoTime());
        pending.decrementAndGet();
        timer.schedule(() -> { }, 5, TimeUnit.MILLISECONDS).get();
        assertFalse(none.isDone());

        pending.decrementAndGet();
        none.get();
    }

    @Test
    void aTopicThatWritesNothingIsClosedAtOnce() {
        assertTrue(writes.none(pending::get, "t", System.nanoTime()).isDone());
    }

    @Test
    void aWriteThatDoesNotEndHoldsATopicForASecondOnly() {
        pending.set(1);
        long began = System.nanoTime() - TimeUnit.MILLISECONDS.toNanos(PendingWrites.WAIT_MS_MAX);

        assertTrue(writes.none(pending::get, "t", began).isDone());
    }

    @Test
    void pulsarsTopicsHaveWhatIsSet() throws Exception {
        assertTrue(PendingWrites.transferringOfPulsar().trySetAccessible());
        assertEquals(boolean.class, PendingWrites.transferringOfPulsar().getType());
    }
}
