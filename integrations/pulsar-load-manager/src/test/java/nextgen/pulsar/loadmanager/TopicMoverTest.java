package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.CloseCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.pulsar.broker.service.Topic;
import org.junit.jupiter.api.Test;

class TopicMoverTest {
    private final List<CloseCallback> closing = new ArrayList<>();
    private final List<String> called = new ArrayList<>();

    @Test
    void cursorsAreClosedSideBySide() {
        CompletableFuture<Void> closed = TopicMover.closeAll(List.of(cursor(), cursor()));
        closing.get(0).closeComplete(null);
        assertFalse(closed.isDone());

        closing.get(1).closeComplete(null);
        assertTrue(closed.isDone());
    }

    @Test
    void clientsAreSentOnEvenIfAPositionCannotBeWritten() {
        CompletableFuture<Void> closed = TopicMover.closeAll(List.of(cursor()));
        closing.get(0).closeFailed(new ManagedLedgerException("no"), null);

        assertTrue(closed.isDone());
        assertFalse(closed.isCompletedExceptionally());
    }

    @Test
    void aTopicWithoutSubscriptionsWaitsForNone() {
        assertTrue(TopicMover.closeAll(List.of()).isDone());
    }

    @Test
    void clientsAreSentOnWhenTheLedgerIsClosedAlsoIfTheyLookTheTopicUp() {
        CompletableFuture<Void> ledger = new CompletableFuture<>();
        CompletableFuture<Void> closed =
                new TopicMover(null, null).close(topic(ledger), Optional.empty());
        assertEquals(List.of("close, clients are kept"), called);

        ledger.complete(null);

        assertEquals(List.of("close, clients are kept", "getProducers", "getSubscriptions", "close"),
                called);
        assertTrue(closed.isDone());
    }

    /** Return a topic without clients that notes what is done with it. */
    private Topic topic(CompletableFuture<Void> ledgerClosed) {
        return (Topic) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {Topic.class}, (proxy, method, arguments) -> switch (method.getName()) {
                    case "close" -> {
                        boolean keepsClients = Boolean.FALSE.equals(arguments[0]);
                        called.add(keepsClients ? "close, clients are kept" : "close");
                        yield keepsClients ? ledgerClosed : CompletableFuture.completedFuture(null);
                    }
                    case "getName" -> "topic";
                    default -> {
                        called.add(method.getName());
                        yield Map.of();
                    }
                });
    }

    /** Return a cursor that keeps who wants to know that it is closed. */
    private ManagedCursor cursor() {
        return (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {ManagedCursor.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("asyncClose")) {
                        closing.add((CloseCallback) arguments[0]);
                    }
                    return method.getName().equals("toString") ? "cursor" : null;
                });
    }
}
