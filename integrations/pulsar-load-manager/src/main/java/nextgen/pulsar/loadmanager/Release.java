package nextgen.pulsar.loadmanager;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;

/** A release of this plug-in, and the one of Apache Pulsar that it was built for. */
record Release(String plugin, String pulsar) {
    private static final String FILE = "release.properties";

    /** Return the release in the classpath. */
    static Release installed() throws IOException {
        try (InputStream file = Release.class.getResourceAsStream(FILE)) {
            if (file == null) {
                throw new IOException(FILE + " is missing in the plug-in's jar");
            }
            Properties read = new Properties();
            read.load(file);
            return new Release(read.getProperty("plugin", ""), read.getProperty("pulsar", ""));
        }
    }
}
