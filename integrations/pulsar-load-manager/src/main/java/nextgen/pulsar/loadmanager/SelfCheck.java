package nextgen.pulsar.loadmanager;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has the broker open a topic of its own before the cluster gives it those of others: by Pulsar's
 * health check, which sends and reads a message.
 *
 * <p>The first topic of a process takes many times as long as the next one, as the JVM loads classes
 * for it. Those of a dead broker come together, and all would wait for that (ADR 0196).
 */
final class SelfCheck {
    /** It takes half a second. Pulsar itself gives up after a minute. */
    static final long MS_MAX = 10_000;

    private static final Logger LOG = LoggerFactory.getLogger(SelfCheck.class);

    private SelfCheck() {
    }

    /**
     * Run a check. Complete when it has ended or took too long, whether it succeeded or not: topics
     * that cannot be opened are refused with the reason, each by itself.
     */
    static CompletableFuture<Void> run(Supplier<CompletableFuture<Void>> check, long msMax) {
        long began = System.nanoTime();
        return started(check).orTimeout(msMax, TimeUnit.MILLISECONDS).handle((done, error) -> {
            long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            if (error == null) {
                LOG.info("this broker has opened a topic of its own in {} ms", ms);
            } else {
                LOG.warn("this broker has not opened a topic of its own in {} ms: {}", ms,
                        error.toString());
            }
            return null;
        });
    }

    private static CompletableFuture<Void> started(Supplier<CompletableFuture<Void>> check) {
        try {
            // What is waited for no more goes on.
            return check.get().copy();
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }
}
