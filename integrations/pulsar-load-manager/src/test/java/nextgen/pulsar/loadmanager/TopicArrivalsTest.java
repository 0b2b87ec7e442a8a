package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import nextgen.pulsar.loadmanager.TopicPreparation.Coming;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;
import org.junit.jupiter.api.Test;

class TopicArrivalsTest {
    private static final String TOPIC = "persistent://acme/orders/eu";
    private static final String LEDGER = "/ledgers/00/0000/L0007";
    private static final String CURSOR = "/managed-ledgers/acme/orders/persistent/eu/all";
    private static final Map<String, String> PROPERTIES = Map.of("a", "b");

    private final List<String> loaded = new ArrayList<>();
    private final TopicArrivals arrivals =
            new TopicArrivals((topic, properties) -> loaded.add(topic + properties));

    @Test
    void aTopicIsLoadedOnceWhenItsLedgerAndPositionsAreWritten() {
        expect(TOPIC, LEDGER, CURSOR);
        arrivals.assigned(TOPIC);
        notice(NotificationType.Modified, LEDGER);
        assertEquals(List.of(), loaded);

        notice(NotificationType.Modified, CURSOR);
        notice(NotificationType.Modified, CURSOR);
        notice(NotificationType.Modified, LEDGER);

        assertEquals(List.of(TOPIC + PROPERTIES), loaded);
    }

    @Test
    void aWriteThatIsRepeatedStandsForNoOther() {
        expect(TOPIC, LEDGER, CURSOR);
        arrivals.assigned(TOPIC);
        notice(NotificationType.Modified, CURSOR);
        notice(NotificationType.Modified, CURSOR);

        assertEquals(List.of(), loaded);
    }

    @Test
    void whatIsWrittenBeforeTheTopicIsAssignedDoesNotCount() {
        expect(TOPIC, LEDGER);
        notice(NotificationType.Modified, LEDGER);
        arrivals.assigned(TOPIC);
        assertEquals(List.of(), loaded);

        notice(NotificationType.Modified, LEDGER);
        assertEquals(List.of(TOPIC + PROPERTIES), loaded);
    }

    @Test
    void aSubscriptionThatIsRemovedIsNotWaitedFor() {
        expect(TOPIC, LEDGER, CURSOR);
        arrivals.assigned(TOPIC);
        notice(NotificationType.Deleted, CURSOR);
        notice(NotificationType.Modified, LEDGER);

        assertEquals(List.of(TOPIC + PROPERTIES), loaded);
    }

    @Test
    void topicsThatWereNotPreparedAndOtherChangesLoadNothing() {
        arrivals.assigned(TOPIC);
        notice(NotificationType.Modified, LEDGER);
        expect(TOPIC, LEDGER);
        arrivals.assigned(TOPIC);
        notice(NotificationType.Created, LEDGER);
        notice(NotificationType.Modified, LEDGER + "0");

        assertEquals(List.of(), loaded);
    }

    @Test
    void eachOfSeveralTopicsWaitsForItsOwnLedger() {
        for (String each : List.of("1", "2")) {
            expect(TOPIC + each, LEDGER + each);
            arrivals.assigned(TOPIC + each);
        }
        notice(NotificationType.Modified, LEDGER + "2");

        assertEquals(List.of(TOPIC + "2" + PROPERTIES), loaded);
    }

    @Test
    void aTopicMayBeAssignedBeforeItIsRead() {
        CompletableFuture<Optional<Coming>> found = new CompletableFuture<>();
        arrivals.expect(TOPIC, found);
        arrivals.assigned(TOPIC);
        found.complete(Optional.of(new Coming(PROPERTIES, Set.of(LEDGER))));
        notice(NotificationType.Modified, LEDGER);

        assertEquals(List.of(TOPIC + PROPERTIES), loaded);
    }

    @Test
    void aTopicThatIsOpenNowhereIsNotLoaded() {
        arrivals.expect(TOPIC, CompletableFuture.completedFuture(Optional.empty()));
        arrivals.assigned(TOPIC);
        notice(NotificationType.Modified, LEDGER);

        assertEquals(List.of(), loaded);
    }

    @Test
    void theEndOfALedgerIsNotItsRemoval() {
        expect(TOPIC, LEDGER);
        arrivals.assigned(TOPIC);
        notice(NotificationType.Deleted, LEDGER);

        assertEquals(List.of(), loaded);
    }

    private void expect(String topic, String... written) {
        arrivals.expect(topic, CompletableFuture.completedFuture(
                Optional.of(new Coming(PROPERTIES, Set.of(written)))));
    }

    private void notice(NotificationType type, String path) {
        arrivals.accept(new Notification(type, path));
    }
}
