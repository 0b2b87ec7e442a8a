package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class SelfCheckTest {
    @Test
    void aBrokerWaitsForItsCheck() {
        CompletableFuture<Void> healthy = new CompletableFuture<>();
        CompletableFuture<Void> checked = SelfCheck.run(() -> healthy, SelfCheck.MS_MAX);
        assertFalse(checked.isDone());

        healthy.complete(null);

        assertTrue(checked.isDone());
    }

    @Test
    void aBrokerThatFailsItGoesOn() {
        SelfCheck.run(() -> CompletableFuture.failedFuture(new IOException("no bookie")),
                SelfCheck.MS_MAX).join();
        SelfCheck.run(() -> {
            throw new IllegalStateException("the broker stops");
        }, SelfCheck.MS_MAX).join();
    }

    @Test
    void aCheckThatHangsIsLeftToItself() {
        CompletableFuture<Void> hangs = new CompletableFuture<>();

        SelfCheck.run(() -> hangs, 1).join();

        assertFalse(hangs.isDone());
    }
}
