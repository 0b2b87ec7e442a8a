package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiPredicate;
import java.util.function.Supplier;
import jdk.net.ExtendedSocketOptions;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The socket on which one sidecar commands this broker.
 *
 * <p>Only this user and root may command the broker: the file is for this user alone, and each
 * connection is asked whose it is. While one sidecar is connected, another one is turned away. Its
 * messages go to {@link Orders}, in order.
 */
final class SidecarLink implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SidecarLink.class);
    private static final int UNSENT_MESSAGES_MAX = 20_000;
    private static final long LOOKUP_TIMEOUT_MS = 10_000;
    private static final long PING_TIMEOUT_MS = 1_000;
    private static final long GREETING_TIMEOUT_MS = 10_000;
    private static final long BYE_TIMEOUT_MS = 1_000;
    private static final long TTL_MS_MAX = 600_000;
    private static final int SHOWN_CHARACTERS_MAX = 80;
    private static final String NO_MORE = "";
    /** The name of root, and what it is called where nobody has a name. */
    private static final Set<String> ROOT = Set.of("root", "0");

    private final Path path;
    private final Orders orders;
    private final Supplier<ObjectNode> greeting;
    private final long greetingTimeoutMs;
    private final BiPredicate<UserPrincipal, UserPrincipal> mayCommand;
    private final ServerSocketChannel server;
    private final UserPrincipal own;
    private final Map<Long, CompletableFuture<Located>> lookups = new ConcurrentHashMap<>();
    private final Map<Long, CompletableFuture<Void>> pings = new ConcurrentHashMap<>();
    private CompletableFuture<Void> pinged = CompletableFuture.completedFuture(null);
    private CompletableFuture<Void> nextPinged;
    private final AtomicLong lastNumber = new AtomicLong();
    private volatile Connection connected;
    private volatile boolean closed;
    private boolean hasRefusedUsers;

    SidecarLink(Path path, Orders orders, Supplier<ObjectNode> greeting) throws IOException {
        this(path, orders, greeting, GREETING_TIMEOUT_MS, SidecarLink::isOwnOrRoot);
    }

    /** {@code mayCommand}: whether the first user may command a broker of the second one. */
    SidecarLink(Path path, Orders orders, Supplier<ObjectNode> greeting, long greetingTimeoutMs,
            BiPredicate<UserPrincipal, UserPrincipal> mayCommand) throws IOException {
        this.greetingTimeoutMs = greetingTimeoutMs;
        this.mayCommand = mayCommand;
        this.path = path;
        this.orders = orders;
        this.greeting = greeting;
        Files.deleteIfExists(path);
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(path));
        // Until here it has the permissions of any file: who is quick may connect.
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-------"));
        own = Files.getOwner(path);
        daemon("nextgen-accept", this::accept);
    }

    boolean isConnected() {
        return connected != null;
    }

    /** Ask where a topic is served. Fails if there is no answer. */
    CompletableFuture<Located> lookUp(String topic) {
        return ask(lookups, LOOKUP_TIMEOUT_MS, Messages.message("lookup").put("topic", topic));
    }

    /**
     * Complete when everything has been carried out that the sidecar sent before this call. Fails if
     * it does not answer, or goes. One ping at a time is under way; who comes meanwhile shares the next.
     */
    synchronized CompletableFuture<Void> ping() {
        if (pinged.isDone()) {
            pinged = ask(pings, PING_TIMEOUT_MS, Messages.message("ping"));
            return pinged;
        }
        if (nextPinged != null) {
            return nextPinged;
        }
        CompletableFuture<Void> next = new CompletableFuture<>();
        nextPinged = next;
        pinged.whenComplete((pong, error) -> pingAgain(next));
        return next;
    }

    private synchronized void pingAgain(CompletableFuture<Void> next) {
        nextPinged = null;
        pinged = ask(pings, PING_TIMEOUT_MS, Messages.message("ping"));
        pinged.whenComplete((pong, error) -> {
            if (error == null) {
                next.complete(null);
            } else {
                next.completeExceptionally(error);
            }
        });
    }

    private <T> CompletableFuture<T> ask(
            Map<Long, CompletableFuture<T>> asked, long timeoutMs, ObjectNode question) {
        long number = lastNumber.incrementAndGet();
        CompletableFuture<T> answer = new CompletableFuture<>();
        asked.put(number, answer);
        if (!send(question.put("number", number))) {
            answer.completeExceptionally(new IOException("no sidecar is connected"));
        }
        answer.orTimeout(timeoutMs, TimeUnit.MILLISECONDS)
                .whenComplete((result, error) -> asked.remove(number));
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
                UserPrincipal user = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
                if (!mayCommand.test(user, own)) {
                    refuse(channel, user);
                } else if (present == null) {
                    connected = new Connection(channel);
                    connected.begin();
                } else {
                    present.turnAway(channel);
                }
            } catch (IOException | RuntimeException e) {
                if (!closed) {
                    LOG.warn("a sidecar could not be accepted: {}", e.toString());
                }
            }
        }
    }

    /** Close the connection of a process of another user. It repeats itself, this logs it once. */
    private void refuse(SocketChannel stranger, UserPrincipal user) throws IOException {
        String why = "a process of user " + user.getName() + " may not command a broker of user "
                + own.getName();
        if (!hasRefusedUsers) {
            hasRefusedUsers = true;
            LOG.warn("{}: it is refused", why);
        }
        sendLast(stranger, Messages.message("bye").put("why", why));
    }

    private static boolean isOwnOrRoot(UserPrincipal user, UserPrincipal own) {
        return user.equals(own) || ROOT.contains(user.getName());
    }

    /** Send one message to who is not connected, and close. */
    private static void sendLast(SocketChannel channel, ObjectNode message) throws IOException {
        try (channel) {
            channel.write(ByteBuffer.wrap(
                    Messages.line(message).getBytes(StandardCharsets.UTF_8)));
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
        private final ReentrantLock writing = new ReentrantLock();
        private volatile String sidecar = "";
        private volatile String node = "";
        private boolean hasTurnedAway;

        private Connection(SocketChannel channel) {
            this.channel = channel;
        }

        private void begin() {
            daemon("nextgen-write", this::write);
            daemon("nextgen-read", this::read);
            try {
                send(greeting.get().put("kind", "hello").put("protocol", Messages.PROTOCOL));
            } catch (RuntimeException e) {
                end("this broker cannot greet yet: " + e);
            }
            // Whoever opens the socket and says nothing keeps the sidecar out.
            CompletableFuture.delayedExecutor(greetingTimeoutMs, TimeUnit.MILLISECONDS)
                    .execute(() -> {
                        if (node.isEmpty()) {
                            end("it did not greet");
                        }
                    });
        }

        /** Close the connection of another sidecar. It repeats itself, this logs it once. */
        private void turnAway(SocketChannel another) throws IOException {
            if (!hasTurnedAway) {
                hasTurnedAway = true;
                LOG.warn("another sidecar wants to command this broker and is turned away, "
                        + "commanding: {}", sidecar);
            }
            sendLast(another, Messages.message("busy").put("sidecar", sidecar));
        }

        private boolean send(ObjectNode message) {
            if (unsent.offer(Messages.line(message))) {
                return true;
            }
            end("it does not read what it is sent");
            return false;
        }

        /**
         * Send a message from this thread if no other waits to be sent, else later. A first lookup
         * waits for {@code synced}, and less without another thread that has to wake up.
         */
        private void sendAtOnce(ObjectNode message) throws IOException {
            if (unsent.isEmpty() && writing.tryLock()) {
                write(Messages.line(message));
            } else {
                send(message);
            }
        }

        /** Write a line and give up the right to write. */
        private void write(String line) throws IOException {
            try {
                ByteBuffer bytes = ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    channel.write(bytes);
                }
            } finally {
                writing.unlock();
            }
        }

        private void write() {
            try {
                for (String line = unsent.take(); !line.equals(NO_MORE); line = unsent.take()) {
                    writing.lock();
                    write(line);
                }
            } catch (IOException e) {
                end(e.toString());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            close(channel);
        }

        private void read() {
            String why = "it closed the connection";
            BoundedLines lines = new BoundedLines(channel, Messages.LINE_BYTES_MAX);
            try {
                for (String line = lines.next(); line != null && connected == this; line = lines.next()) {
                    take(Messages.parse(line));
                }
            } catch (IOException | RuntimeException e) {
                why = e.getMessage() == null ? e.toString() : e.getMessage();
            }
            end(why);
        }

        private void take(JsonNode message) throws IOException {
            String kind = Messages.text(message, "kind");
            if (node.isEmpty() != kind.equals("hello")) {
                throw new IOException("the sidecar greets first, and once");
            }
            switch (kind) {
                case "hello" -> greeted(message);
                case "session" -> orders.session(node,
                        Messages.text(message, "id"), Messages.number(message, "epoch"),
                        Messages.number(message, "ttl_ms", TTL_MS_MAX));
                case "alive" -> orders.alive();
                case "prepare" -> orders.prepare(Messages.text(message, "topic"));
                case "assign" -> orders.assign(
                        Messages.text(message, "topic"), Messages.number(message, "epoch"));
                case "release" -> orders.release(
                        Messages.text(message, "topic"), Messages.number(message, "epoch"),
                        Messages.text(message, "urls"));
                case "list_open" -> orders.listOpen(
                        Messages.number(message, "number"), Messages.text(message, "namespace"));
                case "close_foreign" -> orders.closeForeign(
                        Messages.number(message, "number"), Messages.texts(message, "topics"));
                case "sync" -> sendAtOnce(Messages.message("synced")
                        .put("number", Messages.number(message, "number")));
                case "pong" -> answer(pings, message).complete(null);
                case "located" -> answer(lookups, message).complete(new Located(
                        Messages.text(message, "broker"), Messages.number(message, "epoch"),
                        Messages.text(message, "urls")));
                case "refused" -> answer(lookups, message).completeExceptionally(new LookupRefused(
                        Messages.text(message, "code"), Messages.text(message, "message"),
                        message.path("final").asBoolean()));
                default -> throw new IOException(
                        "the sidecar sent a message of an unknown kind, " + shown(kind));
            }
        }

        private void greeted(JsonNode message) throws IOException {
            long protocol = Messages.number(message, "protocol");
            if (protocol != Messages.PROTOCOL) {
                throw new IOException("the sidecar speaks protocol " + protocol + ", this plug-in "
                        + Messages.PROTOCOL + ": install both of one release");
            }
            String cluster = Messages.text(message, "cluster");
            sidecar = Messages.text(message, "sidecar");
            node = sidecar + " of " + cluster;
            LOG.info("sidecar {} commands this broker", node);
        }

        private <T> CompletableFuture<T> answer(
                Map<Long, CompletableFuture<T>> asked, JsonNode message) throws IOException {
            CompletableFuture<T> found = asked.get(Messages.number(message, "number"));
            // One that has timed out meanwhile is answered in vain.
            return found == null ? new CompletableFuture<>() : found;
        }

        private synchronized void end(String why) {
            if (connected != this) {
                return;
            }
            connected = null;
            LOG.warn("sidecar {} is gone: {}; its session goes on until it times out", sidecar, why);
            // The reason goes to the sidecar too, whose metrics count it.
            unsent.clear();
            unsent.offer(Messages.line(Messages.message("bye").put("why", why)));
            unsent.offer(NO_MORE);
            CompletableFuture.delayedExecutor(BYE_TIMEOUT_MS, TimeUnit.MILLISECONDS)
                    .execute(() -> close(channel));
            IOException gone = new IOException("the sidecar is gone");
            lookups.values().forEach(each -> each.completeExceptionally(gone));
            pings.values().forEach(each -> each.completeExceptionally(gone));
        }
    }

    private static String shown(String text) {
        return text.length() <= SHOWN_CHARACTERS_MAX ? text : text.substring(0, SHOWN_CHARACTERS_MAX);
    }

    private static void close(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("closing the sidecar's connection: {}", e.toString());
        }
    }
}
