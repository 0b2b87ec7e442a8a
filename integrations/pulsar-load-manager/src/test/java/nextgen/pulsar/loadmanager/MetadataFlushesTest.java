package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class MetadataFlushesTest {
    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor();
    private final AtomicInteger flushed = new AtomicInteger();
    private final CountDownLatch thrice = new CountDownLatch(3);
    private final MetadataFlushes flushes = new MetadataFlushes(() -> {
        flushed.incrementAndGet();
        thrice.countDown();
    }, thread);

    @AfterEach
    void end() {
        thread.shutdownNow();
    }

    @Test
    void theStoreIsFlushedAgainAndAgainWhileATopicMovesAndNotAfterwards() throws Exception {
        CompletableFuture<Void> move = new CompletableFuture<>();
        flushes.during(move);
        thrice.await();

        move.completeExceptionally(new IllegalStateException("it was not closed"));

        assertEquals(countAfterWhatRuns(), countAfterWhatRuns());
    }

    @Test
    void aMoveThatHangsIsGivenUpAndNotEnded() throws Exception {
        CompletableFuture<Void> move = new CompletableFuture<>();
        flushes.during(move);

        assertThrows(TimeoutException.class, () ->
                move.get(2 * MetadataFlushes.MOVE_MS_MAX, TimeUnit.MILLISECONDS));
        assertEquals(countAfterWhatRuns(), countAfterWhatRuns());
    }

    @Test
    void batchesOfManyMovesAreLeftToPulsar() throws Exception {
        List<CompletableFuture<Void>> moves = new ArrayList<>();
        CountDownLatch begun = new CountDownLatch(1);
        thread.execute(() -> wait(begun));
        for (int number = 0; number <= MetadataFlushes.MOVES_MAX; number++) {
            moves.add(new CompletableFuture<>());
            flushes.during(moves.get(number));
        }
        begun.countDown();
        assertEquals(0, countAfterWhatRuns());

        moves.get(0).complete(null);
        thrice.await();
        moves.forEach(each -> each.complete(null));
    }

    @Test
    void pulsarsStoreHasWhatIsCalled() throws Exception {
        assertTrue(MetadataFlushes.flushOfPulsar().trySetAccessible());
    }

    /** Return the count once the thread has done what it has to do by now. */
    private int countAfterWhatRuns() throws Exception {
        thread.schedule(() -> { }, 5, TimeUnit.MILLISECONDS).get();
        return flushed.get();
    }

    private static void wait(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
