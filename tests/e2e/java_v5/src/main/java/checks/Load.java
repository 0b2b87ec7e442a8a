package checks;

import static checks.Context.expect;

import org.apache.pulsar.client.api.v5.Producer;

/** Sends messages until it is ended, each once the one before is acknowledged. */
final class Load extends Thread {
    /** Enough for every key to be sent again. */
    private static final int MORE = 3 * Context.KEYS;

    private final Producer<String> producer;
    private volatile boolean isEnded;
    private volatile Throwable failed;
    private int sent;
    private long longestGapNs;

    Load(Producer<String> producer) {
        this.producer = producer;
    }

    @Override
    public void run() {
        try {
            long last = System.nanoTime();
            while (!isEnded) {
                Context.send(producer, sent, 1);
                long now = System.nanoTime();
                count(now - last);
                last = now;
                Thread.sleep(2);
            }
        } catch (Throwable error) {
            failed = error;
        }
    }

    private synchronized void count(long gapNs) {
        sent++;
        longestGapNs = Math.max(longestGapNs, gapNs);
    }

    /** Return when messages of every key were acknowledged since the call. */
    void awaitMore() throws Exception {
        int wanted = sent() + MORE;
        long until = System.nanoTime() + 60_000_000_000L;
        while (sent() < wanted) {
            check();
            expect(System.nanoTime() < until, "nothing is acknowledged");
            Thread.sleep(5);
        }
    }

    /** Return the longest time between two acknowledgements since this was last asked. */
    synchronized long takeLongestGapMs() {
        long taken = longestGapNs / 1_000_000;
        longestGapNs = 0;
        return taken;
    }

    /** End it; return how many messages were acknowledged. */
    int end() throws Exception {
        isEnded = true;
        join();
        check();
        return sent();
    }

    private synchronized int sent() {
        return sent;
    }

    private void check() throws Exception {
        if (failed != null) {
            throw new Exception("sending ended", failed);
        }
    }
}
