package nextgen.pulsar.loadmanager;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.nio.charset.StandardCharsets;

/** Reads lines of UTF-8 that are not longer than a bound. */
final class BoundedLines {
    private static final int BUFFER_BYTES = 64 * 1024;

    private final ReadableByteChannel channel;
    private final int bytesMax;
    private final ByteBuffer read = ByteBuffer.allocate(BUFFER_BYTES).limit(0);

    /** {@code bytesMax}: of a line, its end included. */
    BoundedLines(ReadableByteChannel channel, int bytesMax) {
        this.channel = channel;
        this.bytesMax = bytesMax;
    }

    /** Return the next line without its end, or null if there is none. A line without end is none. */
    String next() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        while (true) {
            while (read.hasRemaining()) {
                byte one = read.get();
                if (line.size() == bytesMax - 1 && one != '\n') {
                    throw new IOException("a message is above " + bytesMax + " bytes");
                }
                if (one == '\n') {
                    return StandardCharsets.UTF_8.newDecoder()
                            .decode(ByteBuffer.wrap(line.toByteArray())).toString();
                }
                line.write(one);
            }
            read.clear();
            int count = channel.read(read);
            read.flip();
            if (count < 0) {
                return null;
            }
        }
    }
}
