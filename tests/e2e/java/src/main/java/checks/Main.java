package checks;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs every check against a service URL and prints one JSON line for each.
 *
 * <p>A check that needs something done to the cluster prints a line with "ask" and goes on when a
 * line comes in. A check fails by throwing; nothing stops the ones behind it.
 */
public final class Main {
    private static final long CHECK_TIMEOUT_S = 90;

    interface Check {
        void run(Context context) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Context context =
                new Context(
                        arguments[0],
                        arguments[1],
                        new BufferedReader(
                                new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Map<String, Check> checks = new LinkedHashMap<>();
        Messaging.register(checks);
        Subscriptions.register(checks);
        Schemas.register(checks);
        Disturbances.register(checks);
        ExecutorService worker =
                Executors.newCachedThreadPool(
                        task -> {
                            Thread thread = new Thread(task);
                            thread.setDaemon(true);
                            return thread;
                        });
        for (Map.Entry<String, Check> entry : checks.entrySet()) {
            report(worker, entry.getKey(), entry.getValue(), context);
        }
        System.exit(0);
    }

    private static void report(
            ExecutorService worker, String name, Check check, Context context) {
        long begin = System.nanoTime();
        Future<?> future =
                worker.submit(
                        () -> {
                            try (Context own = context.forCheck(name)) {
                                check.run(own);
                            }
                            return null;
                        });
        String error = "";
        try {
            future.get(CHECK_TIMEOUT_S, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            error = "no end after " + CHECK_TIMEOUT_S + " s";
            future.cancel(true);
        } catch (Exception failed) {
            error = Context.story(failed.getCause() == null ? failed : failed.getCause());
        }
        long tookMs = (System.nanoTime() - begin) / 1_000_000;
        Context.print(
                "{\"check\":" + Context.quoted(name) + ",\"error\":" + Context.quoted(error)
                        + ",\"took_ms\":" + tookMs + "}");
    }
}
