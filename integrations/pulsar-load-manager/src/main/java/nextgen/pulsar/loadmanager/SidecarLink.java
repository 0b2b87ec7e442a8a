package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The socket on which one sidecar commands this broker.
 *
 * <p>The file is readable for this user only: whoever may open it may command the broker. While one
 * sidecar is connected, another one is turned away. Its messages go to {@link Orders}, in order.
 */
final class SidecarLink implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SidecarLink.class);
    private static final int UNSENT_MESSAGES_MAX = 20_000;
    private static final long LOOKUP_TIMEOUT_MS = 10_000;

    private final Path path;
    private final Orders orders;
    private final Supplier<ObjectNode> greeting;
    private final ServerSocketChannel server;
    private final Map<Long, CompletableFuture<Located>> lookups = new ConcurrentHashMap<>();
    private final AtomicLong lastLookup = new AtomicLong();
    private volatile Connection connected;
    private volatile boolean closed;

    SidecarLink(Path path, Orders orders, Supplier<ObjectNode> greeting) throws IOException {
        this.path = path;
        this.orders = orders;
        this.greeting = greeting;
        Files.deleteIfExists(path);
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(path));
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-------"));
        daemon("nextgen-accept", this::accept);
    }

    boolean isConnected() {
        return connected != null;
    }

    /** Ask where a topic is served. Fails if there is no answer. */
    CompletableFuture<Located> lookUp(String topic) {
        long number = lastLookup.incrementAndGet();
        CompletableFuture<Located> answer = new CompletableFuture<>();
        lookups.put(number, answer);
        if (!send(Messages.message("lookup").put("number", number).put("topic", topic))) {
            answer.completeExceptionally(new IOException("no sidecar is connected"));
        }
        answer.orTimeout(LOOKUP_TIMEOUT_MS, TimeUnit.MILLISECONDS)
                .whenComplete((located, error) -> lookups.remove(number));
        return answer;
    }

    /** Send a message soon; return whether there is anybody to send it to. */
    boolean send(ObjectNode message) {
        Connection connection = connected;
        return connection != null && connection.send(message);
    }

    @Override
    public void close() throws IOException {
        closed = true;
        server.close();
        Connection connection = connected;
        if (connection != null) {
            connection.end("the broker stops");
        }
        Files.deleteIfExists(path);
    }

    private void accept() {
        while (!closed) {
            try {
                SocketChannel channel = server.accept();
                Connection present = connected;
                if (present == null) {
                    connected = new Connection(channel);
                    connected.begin();
                } else {
                    LOG.warn("another sidecar wants to command this broker and is turned away, "
                            + "commanding: {}", present.sidecar);
                    channel.write(ByteBuffer.wrap(Messages.line(Messages.message("busy")
                            .put("sidecar", present.sidecar)).getBytes(StandardCharsets.UTF_8)));
                    channel.close();
                }
            } catch (IOException e) {
                if (!closed) {
                    LOG.warn("a sidecar could not be accepted: {}", e.toString());
                }
            }
        }
    }

    private static void daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** One sidecar, until it goes away or breaks the protocol. */
    private final class Connection {
        private final SocketChannel channel;
        private final BlockingQueue<String> unsent = new ArrayBlockingQueue<>(UNSENT_MESSAGES_MAX);
        private volatile String sidecar = "";

        private Connection(SocketChannel channel) {
            this.channel = channel;
        }

        private void begin() {
            daemon("nextgen-write", this::write);
            daemon("nextgen-read", this::read);
            send(greeting.get().put("kind", "hello").put("protocol", Messages.PROTOCOL));
        }

        private boolean send(ObjectNode message) {
            if (unsent.offer(Messages.line(message))) {
                return true;
            }
            end("it does not read what it is sent");
            return false;
        }

        private void write() {
            try {
                while (channel.isOpen()) {
                    ByteBuffer bytes = ByteBuffer.wrap(unsent.take().getBytes(StandardCharsets.UTF_8));
                    while (bytes.hasRemaining()) {
                        channel.write(bytes);
                    }
                }
            } catch (IOException e) {
                end(e.toString());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        private void read() {
            String why = "it closed the connection";
            try (BufferedReader lines = new BufferedReader(
                    Channels.newReader(channel, StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    take(Messages.parse(line));
                }
            } catch (IOException | RuntimeException e) {
                why = e.toString();
            }
            end(why);
        }

        private void take(JsonNode message) throws IOException {
            switch (Messages.text(message, "kind")) {
                case "hello" -> greeted(message);
                case "session" -> orders.session(
                        Messages.text(message, "id"), Messages.number(message, "ttl_ms"));
                case "alive" -> orders.alive();
                case "assign" -> orders.assign(
                        Messages.text(message, "topic"), Messages.number(message, "epoch"));
                case "release" -> orders.release(
                        Messages.text(message, "topic"), Messages.number(message, "epoch"),
                        Messages.text(message, "urls"));
                case "sync" -> send(Messages.message("synced")
                        .put("number", Messages.number(message, "number")));
                case "located" -> answer(message).complete(new Located(
                        Messages.text(message, "broker"), Messages.number(message, "epoch"),
                        Messages.text(message, "urls")));
                case "refused" -> answer(message).completeExceptionally(new LookupRefused(
                        Messages.text(message, "code"), Messages.text(message, "message"),
                        message.path("final").asBoolean()));
                default -> throw new IOException("the sidecar sent a message of an unknown kind");
            }
        }

        private void greeted(JsonNode message) throws IOException {
            long protocol = Messages.number(message, "protocol");
            if (protocol != Messages.PROTOCOL) {
                throw new IOException("the sidecar speaks protocol " + protocol + ", this plug-in "
                        + Messages.PROTOCOL + ": install both of one release");
            }
            sidecar = Messages.text(message, "sidecar");
            LOG.info("sidecar {} commands this broker", sidecar);
        }

        private CompletableFuture<Located> answer(JsonNode message) throws IOException {
            CompletableFuture<Located> asked = lookups.get(Messages.number(message, "number"));
            // One that has timed out meanwhile is answered in vain.
            return asked == null ? new CompletableFuture<>() : asked;
        }

        private synchronized void end(String why) {
            if (connected != this) {
                return;
            }
            connected = null;
            LOG.warn("sidecar {} is gone: {}; its session goes on until it times out", sidecar, why);
            try {
                channel.close();
            } catch (IOException e) {
                LOG.debug("closing the sidecar's connection: {}", e.toString());
            }
            unsent.offer("\n");
            IOException gone = new IOException("the sidecar is gone");
            lookups.values().forEach(each -> each.completeExceptionally(gone));
        }
    }
}
