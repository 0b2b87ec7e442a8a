package admin;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/** Runs pulsar-admin once for each line of its input, in one process: a start takes seconds. */
public final class Main extends PulsarAdminTool {
    private Main(Properties properties) throws Exception {
        super(properties);
    }

    /**
     * @param arguments the admin URL
     */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            var printed = new ByteArrayOutputStream();
            var stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(stream);
            boolean succeeded = run(arguments[0], line.split("\t"));
            stream.flush();
            answers.println(succeeded + "\t" + escaped(printed.toString(StandardCharsets.UTF_8)));
            answers.flush();
        }
        // The tool's clients have threads that would keep this process alive.
        System.exit(0);
    }

    private static boolean run(String url, String[] words) {
        var properties = new Properties();
        properties.setProperty("webServiceUrl", url);
        try {
            return new Main(properties).run(words);
        } catch (Exception error) {
            error.printStackTrace();
            return false;
        }
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "");
    }
}
