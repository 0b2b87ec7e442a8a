package checks;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs every check of a suite and prints a JSON line for each. Arguments: service URL, prefix of
 * topics, suite.
 */
public final class Main {
    interface Check {
        void run(Context context) throws Exception;
    }

    private static final long CHECK_MS_MAX = 60_000;

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader answers =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (Map.Entry<String, Check> each : checks(arguments[2]).entrySet()) {
            String error = run(each.getValue(), arguments[0], arguments[1] + each.getKey(), answers);
            Context.print(
                    "{\"check\":"
                            + Context.quoted(each.getKey())
                            + ",\"error\":"
                            + Context.quoted(error)
                            + "}");
        }
        // Threads of a client may linger.
        System.exit(0);
    }

    /** Run a check; return what went wrong, or where it stands if it does not end. */
    private static String run(Check check, String url, String topic, BufferedReader answers)
            throws InterruptedException {
        String[] error = {""};
        Thread running =
                new Thread(
                        () -> {
                            try (Context own = new Context(url, topic, answers)) {
                                check.run(own);
                            } catch (Throwable failed) {
                                error[0] = Context.story(failed);
                            }
                        });
        running.setDaemon(true);
        running.start();
        running.join(CHECK_MS_MAX);
        if (running.isAlive()) {
            Throwable stands = new IllegalStateException("no end");
            stands.setStackTrace(running.getStackTrace());
            return Context.story(stands);
        }
        return error[0];
    }

    private static Map<String, Check> checks(String suite) {
        return suite.equals("segments") ? segments() : subscriptions();
    }

    private static Map<String, Check> subscriptions() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("seek stream", Subscriptions::seekStream);
        checks.put("seek queue", Subscriptions::seekQueue);
        checks.put("queue away", Subscriptions::away);
        checks.put("clear backlog", Subscriptions::clearBacklog);
        checks.put("checkpoints", Subscriptions::checkpoints);
        checks.put("checkpoint group", Subscriptions::checkpointGroup);
        checks.put("refused", Subscriptions::refused);
        checks.put("dead letters", Subscriptions::deadLetters);
        checks.put("rebucket", Subscriptions::rebucket);
        checks.put("deleted", Subscriptions::deleted);
        checks.put("names", Subscriptions::names);
        checks.put("twin", Subscriptions::twin);
        return checks;
    }

    private static Map<String, Check> segments() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("one segment", Segments::one);
        checks.put("several segments", Segments::several);
        checks.put("absent and not to be created", Segments::closedNamespace);
        checks.put("classic topic", Segments::classic);
        checks.put("classic topic with partitions", Segments::partitions);
        checks.put("classic topic that is migrated", Segments::migrated);
        checks.put("queue shared", Segments::shared);
        checks.put("checkpoint", Segments::checkpoint);
        checks.put("segments move under load", Segments::move);
        checks.put("split and merge under load", Segments::splitAndMerge);
        checks.put("stream over split and merge", Segments::stream);
        checks.put("queue of a namespace", Namespaces::queue);
        checks.put("stream of a namespace", Namespaces::stream);
        checks.put("kill under load", Segments::kill);
        return checks;
    }
}
