package admin;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Runs pulsar-admin once for each line of its input, in one process and by one tool, as pulsar-shell
 * does: to make its commands and its HTTP client takes longer than most calls.
 */
public final class Main extends PulsarAdminTool {
    private Main(Properties properties) throws Exception {
        super(properties);
    }

    /**
     * @param arguments the admin URL
     */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        var printed = new ByteArrayOutputStream();
        // The tool keeps the streams that it finds at first, and one of its commands closes them.
        var stream =
                new PrintStream(printed, true, StandardCharsets.UTF_8) {
                    @Override
                    public void close() {
                        flush();
                    }
                };
        System.setOut(stream);
        System.setErr(stream);
        var properties = new Properties();
        properties.setProperty("webServiceUrl", arguments[0]);
        var tool = new Main(properties);
        var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            boolean succeeded = tool.run(line.split("\t"));
            answers.println(succeeded + "\t" + escaped(printed.toString(StandardCharsets.UTF_8)));
            answers.flush();
            printed.reset();
        }
        // The tool's clients have threads that would keep this process alive.
        System.exit(0);
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "");
    }
}
