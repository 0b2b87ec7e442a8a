package checks;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Sends messages at a rate, each with one of many keys, and the next one of a key once the one
 * before is acknowledged. A message that fails ends its key.
 */
final class Paced extends Thread {
    private static final int ANSWER_S = 10;

    private final Producer<String> producer;
    private final int perSecond;
    private final CompletableFuture<?>[] last;
    /** The number that was acknowledged last, by key; -1 for none. */
    private final int[] numbers;
    private volatile boolean isEnded;

    private int acknowledged;
    private String failed = "";
    private long lastAcknowledgedNs;
    private long longestGapNs;
    private long slowestNs;

    Paced(Producer<String> producer, int perSecond, int keys) {
        this.producer = producer;
        this.perSecond = perSecond;
        this.last = new CompletableFuture<?>[keys];
        for (int key = 0; key < keys; key++) {
            last[key] = CompletableFuture.completedFuture(null);
        }
        this.numbers = new int[keys];
        Arrays.fill(numbers, -1);
    }

    @Override
    public void run() {
        long began = System.nanoTime();
        synchronized (this) {
            lastAcknowledgedNs = began;
        }
        for (int number = 0; !isEnded; number++) {
            long due = began + number * 1_000_000_000L / perSecond;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            send(number);
        }
    }

    private void send(int number) {
        int key = number % last.length;
        last[key] = last[key].thenCompose(before -> sent(key, number));
    }

    private CompletableFuture<?> sent(int key, int number) {
        long began = System.nanoTime();
        return Context.send(producer, "key-" + key, number)
                .whenComplete((id, error) -> count(key, number, began, error));
    }

    private synchronized void count(int key, int number, long began, Throwable error) {
        if (error != null) {
            failed = Context.story(error);
            return;
        }
        long now = System.nanoTime();
        acknowledged++;
        numbers[key] = number;
        longestGapNs = Math.max(longestGapNs, now - lastAcknowledgedNs);
        slowestNs = Math.max(slowestNs, now - began);
        lastAcknowledgedNs = now;
    }

    /** What happened since this was last asked, as JSON. */
    synchronized String take() {
        String taken =
                "{\"acknowledged\":" + acknowledged
                        + ",\"longest_gap_ms\":" + longestGapNs / 1e6
                        + ",\"slowest_ms\":" + slowestNs / 1e6
                        + ",\"failed\":" + Context.quoted(failed) + "}";
        longestGapNs = 0;
        slowestNs = 0;
        return taken;
    }

    /** The number that was acknowledged last, by key. */
    synchronized String numbers() {
        return Arrays.toString(numbers);
    }

    /** End it; return how many keys have a message that is never answered. */
    int end() throws Exception {
        isEnded = true;
        join();
        try {
            CompletableFuture.allOf(last).get(ANSWER_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            // Both are counted.
        }
        return (int) Arrays.stream(last).filter(each -> !each.isDone()).count();
    }

    /**
     * Arguments: service URL, topic, messages per second, keys. Answers each line of its input with
     * what happened since the one before; ends with its input, and a last answer.
     */
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<String> producer =
                        client.newProducer(Schema.string()).topic(arguments[1]).create()) {
            Paced paced =
                    new Paced(
                            producer,
                            Integer.parseInt(arguments[2]),
                            Integer.parseInt(arguments[3]));
            paced.start();
            while (questions.readLine() != null) {
                Context.print(paced.take());
            }
            int unanswered = paced.end();
            String ends =
                    "{\"unanswered_keys\":" + unanswered + ",\"last\":" + paced.numbers() + ",";
            Context.print(paced.take().replace("{", ends));
        }
        // Threads of a client may linger.
        System.exit(0);
    }
}
