package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.SocketException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BiPredicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(30)
class SidecarLinkTest {
    private static final String TOPIC = "persistent://acme/orders/eu";

    private static final String HELLO = "{\"kind\":\"hello\",\"protocol\":" + Messages.PROTOCOL
            + ",\"sidecar\":\"stock-1\",\"cluster\":\"c\"}";

    @TempDir
    private Path folder;
    private final KeptOrders orders = new KeptOrders();
    private SidecarLink link;

    @BeforeEach
    void listen() throws IOException {
        listen(60_000);
    }

    private void listen(long greetingTimeoutMs) throws IOException {
        listen(greetingTimeoutMs, (user, own) -> user.equals(own));
    }

    private void listen(long greetingTimeoutMs,
            BiPredicate<UserPrincipal, UserPrincipal> mayCommand) throws IOException {
        link = new SidecarLink(socket(), orders,
                () -> Messages.message("hello").put("broker", "b1:8080").put("urls", "pulsar://b1:6650"),
                greetingTimeoutMs, mayCommand);
    }

    @AfterEach
    void close() throws IOException {
        link.close();
    }

    @Test
    void onlyThisUserMayOpenTheSocket() throws IOException {
        assertEquals("rw-------", PosixFilePermissions.toString(
                Files.getPosixFilePermissions(socket())));
    }

    @Test
    void aProcessOfAUserWhoMayNotCommandIsRefusedAndHeardNoFurther() throws Exception {
        link.close();
        listen(60_000, (user, own) -> false);
        try (Sidecar stranger = new Sidecar()) {
            JsonNode bye = stranger.next();

            assertEquals("bye", bye.get("kind").asText());
            assertTrue(bye.get("why").asText().contains("may not command"), bye.toString());
            assertNull(stranger.next());
        }
        assertFalse(link.isConnected());
        assertTrue(orders.kept.isEmpty());
    }

    @Test
    void theBrokerGreetsFirst() throws IOException {
        try (Sidecar sidecar = new Sidecar()) {
            JsonNode greeting = sidecar.next();

            assertEquals("hello", greeting.get("kind").asText());
            assertEquals(Messages.PROTOCOL, greeting.get("protocol").asInt());
            assertEquals("pulsar://b1:6650", greeting.get("urls").asText());
        }
    }

    @Test
    void ordersArriveInTheirOrderAndBeforeTheyAreConfirmed() throws Exception {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            sidecar.send("{\"kind\":\"session\",\"id\":\"s-1\",\"epoch\":1,\"ttl_ms\":3000}");
            sidecar.send("{\"kind\":\"prepare\",\"topic\":\"" + TOPIC + "\"}");
            sidecar.send("{\"kind\":\"assign\",\"topic\":\"" + TOPIC + "\",\"epoch\":5}");
            sidecar.send("{\"kind\":\"release\",\"topic\":\"" + TOPIC
                    + "\",\"epoch\":5,\"urls\":\"pulsar://b2:6650\"}");
            sidecar.send("{\"kind\":\"alive\"}");
            sidecar.send("{\"kind\":\"sync\",\"number\":7}");

            assertEquals("{\"kind\":\"synced\",\"number\":7}", sidecar.next().toString());
            assertEquals("session stock-1 of c s-1 1 3000", orders.kept.poll());
            assertEquals("prepare " + TOPIC, orders.kept.poll());
            assertEquals("assign " + TOPIC + " 5", orders.kept.poll());
            assertEquals("release " + TOPIC + " 5 pulsar://b2:6650", orders.kept.poll());
            assertEquals("alive", orders.kept.poll());
        }
    }

    @Test
    void ordersOfAHandoverArrive() throws Exception {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            sidecar.send("{\"kind\":\"list_open\",\"number\":3,\"namespace\":\"acme/orders\"}");
            sidecar.send("{\"kind\":\"close_foreign\",\"number\":4,\"topics\":[\"" + TOPIC + "\"]}");
            sidecar.send("{\"kind\":\"sync\",\"number\":7}");

            assertEquals("synced", sidecar.next().get("kind").asText());
            assertEquals("list 3 acme/orders", orders.kept.poll());
            assertEquals("close 4 [" + TOPIC + "]", orders.kept.poll());
        }
    }

    @Test
    void aLookupIsAnswered() throws Exception {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            CompletableFuture<Located> located = link.lookUp(TOPIC);
            JsonNode question = sidecar.next();
            assertEquals(TOPIC, question.get("topic").asText());
            sidecar.send("{\"kind\":\"located\",\"number\":" + question.get("number")
                    + ",\"broker\":\"broker-2\",\"epoch\":6,\"urls\":\"pulsar://b2:6650\"}");

            assertEquals(new Located("broker-2", 6, "pulsar://b2:6650"),
                    located.get(10, TimeUnit.SECONDS));
        }
    }

    @Test
    void aLookupIsRefused() throws Exception {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            CompletableFuture<Located> located = link.lookUp(TOPIC);
            sidecar.send("{\"kind\":\"refused\",\"number\":" + sidecar.next().get("number")
                    + ",\"code\":\"NOT_FOUND\",\"message\":\"no such topic\",\"final\":true}");

            ExecutionException error = assertThrows(
                    ExecutionException.class, () -> located.get(10, TimeUnit.SECONDS));
            LookupRefused refused = assertInstanceOf(LookupRefused.class, error.getCause());
            assertEquals("NOT_FOUND", refused.code());
            assertTrue(refused.isFinal());
        }
    }

    @Test
    void aPongComesBehindWhatWasSentBeforeItAndIsSharedByWhoWaits() throws Exception {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            CompletableFuture<Void> first = link.ping();
            JsonNode ping = sidecar.next();
            CompletableFuture<Void> second = link.ping();
            CompletableFuture<Void> third = link.ping();
            sidecar.send("{\"kind\":\"assign\",\"topic\":\"" + TOPIC + "\",\"epoch\":5}");
            sidecar.send("{\"kind\":\"pong\",\"number\":" + ping.get("number") + "}");
            first.get(10, TimeUnit.SECONDS);

            assertEquals("assign " + TOPIC + " 5", orders.kept.poll());
            assertFalse(second.isDone());
            JsonNode next = sidecar.next();
            assertEquals("ping", next.get("kind").asText());
            sidecar.send("{\"kind\":\"pong\",\"number\":" + next.get("number") + "}");
            CompletableFuture.allOf(second, third).get(10, TimeUnit.SECONDS);
            sidecar.send("{\"kind\":\"sync\",\"number\":1}");
            assertEquals("synced", sidecar.next().get("kind").asText());
        }
        assertThrows(ExecutionException.class, () -> link.ping().get(10, TimeUnit.SECONDS));
    }

    @Test
    void lookupsFailWithoutASidecarAndWhenItGoes() throws Exception {
        assertThrows(ExecutionException.class, () -> link.lookUp(TOPIC).get(10, TimeUnit.SECONDS));

        CompletableFuture<Located> located;
        try (Sidecar sidecar = new Sidecar().greeted()) {
            located = link.lookUp(TOPIC);
            sidecar.next();
        }
        assertThrows(ExecutionException.class, () -> located.get(10, TimeUnit.SECONDS));
    }

    @Test
    void aSecondSidecarIsTurnedAwayAndTheFirstGoesOn() throws IOException {
        try (Sidecar first = new Sidecar().greeted(); Sidecar second = new Sidecar()) {
            assertEquals("{\"kind\":\"busy\",\"sidecar\":\"stock-1\"}", second.next().toString());
            assertNull(second.next());

            first.send("{\"kind\":\"sync\",\"number\":1}");
            assertEquals("synced", first.next().get("kind").asText());
        }
    }

    @Test
    void anotherSidecarMayFollowTheFirst() throws IOException {
        new Sidecar().greeted().close();
        JsonNode greeting = null;
        while (greeting == null || !"hello".equals(greeting.get("kind").asText())) {
            try (Sidecar next = new Sidecar()) {
                greeting = next.next();
            }
        }
        assertEquals("b1:8080", greeting.get("broker").asText());
    }

    @Test
    void whatIsNoMessageEndsTheConnectionWithItsReasonAndOrdersNothing() throws IOException {
        for (String line : new String[] {
            "", "[]", "{}", "no JSON", "{} {}", "{\"kind\":\"unknown\"}", "{\"kind\":\"assign\"}",
            "{\"kind\":\"assign\",\"topic\":\"t\",\"epoch\":\"5\"}",
            "{\"kind\":\"assign\",\"topic\":\"t\",\"epoch\":-1}",
            "{\"kind\":\"assign\",\"topic\":\"t\",\"epoch\":18446744073709551616}",
            "{\"kind\":\"assign\",\"topic\":[\"t\"],\"epoch\":5}",
            "{\"kind\":\"session\",\"id\":\"s\",\"epoch\":1,\"ttl_ms\":600001}",
            "{\"kind\":\"session\",\"id\":\"stale\",\"epoch\":1,\"ttl_ms\":3000}",
            "{\"kind\":\"close_foreign\",\"number\":1,\"topics\":\"t\"}",
            "{\"kind\":\"close_foreign\",\"number\":1,\"topics\":[5]}",
            HELLO}) {
            try (Sidecar sidecar = connected()) {
                sidecar.send(HELLO);
                sidecar.send(line);
                sidecar.send("{\"kind\":\"assign\",\"topic\":\"behind\",\"epoch\":1}");
                JsonNode bye = sidecar.next();
                assertEquals("bye", bye.get("kind").asText(), line);
                assertFalse(bye.get("why").asText().isEmpty(), line);
                assertNull(sidecar.next(), line);
            }
        }
        assertTrue(orders.kept.isEmpty());
    }

    @Test
    void aSidecarOfAnotherProtocolIsToldSo() throws IOException {
        try (Sidecar sidecar = connected()) {
            sidecar.send("{\"kind\":\"hello\",\"protocol\":1,\"sidecar\":\"earlier\"}");
            assertEquals("the sidecar speaks protocol 1, this plug-in " + Messages.PROTOCOL
                    + ": install both of one release", sidecar.next().get("why").asText());
            assertNull(sidecar.next());
        }
    }

    @Test
    void nothingIsTakenFromWhoDoesNotGreetFirst() throws IOException {
        try (Sidecar sidecar = connected()) {
            sidecar.send("{\"kind\":\"session\",\"id\":\"s-1\",\"epoch\":1,\"ttl_ms\":3000}");
            assertEquals("the sidecar greets first, and once", sidecar.next().get("why").asText());
        }
        assertTrue(orders.kept.isEmpty());
    }

    @Test
    void whoOpensTheSocketAndSaysNothingDoesNotKeepTheSidecarOut() throws IOException {
        link.close();
        listen(100);
        try (Sidecar silent = connected()) {
            assertEquals("it did not greet", silent.next().get("why").asText());
            connected().close();
        }
    }

    @Test
    void fieldsThatAreNotKnownAreIgnored() throws IOException {
        try (Sidecar sidecar = new Sidecar().greeted()) {
            sidecar.send("{\"kind\":\"assign\",\"topic\":\"t\",\"epoch\":5,\"later\":{\"a\":[1]}}");
            sidecar.send("{\"kind\":\"sync\",\"number\":1,\"later\":true}");
            assertEquals("synced", sidecar.next().get("kind").asText());
        }
        assertEquals("assign t 5", orders.kept.poll());
    }

    @Test
    void aMessageIsAMebibyteAtMost() throws IOException {
        for (int over : new int[] {0, 1}) {
            try (Sidecar sidecar = connected()) {
                sidecar.send(HELLO);
                String start = "{\"kind\":\"sync\",\"number\":1,\"padding\":\"";
                String end = "\"}";
                sidecar.send(start + "x".repeat(
                        Messages.LINE_BYTES_MAX - 1 + over - start.length() - end.length()) + end);
                assertEquals(over == 0 ? "synced" : "bye", sidecar.next().get("kind").asText());
            }
        }
    }

    @Test
    void withoutASidecarNothingIsSent() {
        assertFalse(link.send(Messages.message("alive")));
    }

    private Path socket() {
        return folder.resolve("s");
    }

    /** Connect once the connection before has ended. */
    private Sidecar connected() throws IOException {
        while (true) {
            Sidecar sidecar = new Sidecar();
            if ("hello".equals(sidecar.next().get("kind").asText())) {
                return sidecar;
            }
            sidecar.close();
        }
    }

    private static final class KeptOrders implements Orders {
        private final BlockingQueue<String> kept = new LinkedBlockingQueue<>();

        @Override
        public void session(String node, String sessionId, long epoch, long ttlMs) {
            if (sessionId.equals("stale")) {
                throw new StaleSession("session stale is over");
            }
            kept.add("session " + node + " " + sessionId + " " + epoch + " " + ttlMs);
        }

        @Override
        public void alive() {
            kept.add("alive");
        }

        @Override
        public void prepare(String topic) {
            kept.add("prepare " + topic);
        }

        @Override
        public void assign(String topic, long epoch) {
            kept.add("assign " + topic + " " + epoch);
        }

        @Override
        public void release(String topic, long epoch, String urls) {
            kept.add("release " + topic + " " + epoch + " " + urls);
        }

        @Override
        public void listOpen(long number, String namespace) {
            kept.add("list " + number + " " + namespace);
        }

        @Override
        public void closeForeign(long number, List<String> topics) {
            kept.add("close " + number + " " + topics);
        }
    }

    private final class Sidecar implements AutoCloseable {
        private final SocketChannel channel;
        private final BufferedReader lines;

        private Sidecar() throws IOException {
            channel = SocketChannel.open(UnixDomainSocketAddress.of(socket()));
            lines = new BufferedReader(Channels.newReader(channel, StandardCharsets.UTF_8));
        }

        private Sidecar greeted() throws IOException {
            assertEquals("hello", next().get("kind").asText());
            return greetedBack();
        }

        private Sidecar greetedBack() throws IOException {
            send(HELLO);
            send("{\"kind\":\"sync\",\"number\":0}");
            assertEquals("synced", next().get("kind").asText());
            return this;
        }

        private void send(String line) throws IOException {
            ByteBuffer bytes = ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8));
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }

        /** Return the next message; null: the plug-in has closed the connection. */
        private JsonNode next() throws IOException {
            try {
                String line = lines.readLine();
                return line == null ? null : Messages.parse(line);
            } catch (SocketException e) {
                // It had not read all that it was sent.
                return null;
            }
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
