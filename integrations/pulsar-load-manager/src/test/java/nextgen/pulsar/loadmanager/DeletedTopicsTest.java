package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;
import org.junit.jupiter.api.Test;

class DeletedTopicsTest {
    private static final String LEDGER = "/managed-ledgers/acme/orders/persistent/";
    private static final String PARTITIONED = "/admin/partitioned-topics/acme/orders/persistent/";
    private static final String TOPIC = "persistent://acme/orders/";

    private final Set<String> existing = new HashSet<>();
    private final Set<String> others = new HashSet<>();
    private final DeletedTopics deleted = new DeletedTopics(topic -> !others.contains(topic),
            topic -> CompletableFuture.completedFuture(existing.contains(topic)));

    @Test
    void aTopicEndsWithItsLedgerAndAPartitionedOneWithItsEntry() {
        assertEquals(Optional.of(TOPIC + "eu"), DeletedTopics.topicOf(LEDGER + "eu"));
        assertEquals(Optional.of(TOPIC + "eu"), DeletedTopics.topicOf(PARTITIONED + "eu"));
        assertEquals(Optional.empty(), DeletedTopics.topicOf(LEDGER + "eu-partition-3"));
        assertEquals(Optional.of(TOPIC + "a/b"), DeletedTopics.topicOf(LEDGER + "a%2Fb"));
        for (String other : new String[] {
            "/managed-ledgers/acme/orders/persistent", LEDGER + "eu/cursor",
            "/managed-ledgers/acme/orders/non-persistent/eu", "/admin/policies/acme/orders", ""}) {
            assertEquals(Optional.empty(), DeletedTopics.topicOf(other), other);
        }
    }

    @Test
    void whatIsDeletedIsReportedOnce() {
        deleted.accept(new Notification(NotificationType.Deleted, LEDGER + "eu"));

        assertEquals(List.of(TOPIC + "eu"), deleted.take());
        assertEquals(List.of(), deleted.take());
    }

    @Test
    void otherChangesAndTopicsOfOthersAreNotReported() {
        others.add(TOPIC + "theirs");
        deleted.accept(new Notification(NotificationType.Created, LEDGER + "eu"));
        deleted.accept(new Notification(NotificationType.Modified, LEDGER + "eu"));
        deleted.accept(new Notification(NotificationType.Deleted, LEDGER + "theirs"));

        assertEquals(List.of(), deleted.take());
    }

    @Test
    void aTopicThatIsThereAgainIsNotReported() {
        existing.add(TOPIC + "eu");
        deleted.accept(new Notification(NotificationType.Deleted, LEDGER + "eu"));

        assertEquals(List.of(), deleted.take());
    }

    @Test
    void whatCouldNotBeReportedIsReportedLater() {
        deleted.accept(new Notification(NotificationType.Deleted, LEDGER + "eu"));
        deleted.putBack(deleted.take());

        assertEquals(List.of(TOPIC + "eu"), deleted.take());
    }

    @Test
    void soManyAreKeptAndNoMore() {
        for (int number = 0; number <= DeletedTopics.UNTOLD_MAX; number++) {
            deleted.accept(new Notification(NotificationType.Deleted, LEDGER + number));
        }
        int kept = 0;
        for (List<String> page = deleted.take(); !page.isEmpty(); page = deleted.take()) {
            kept += page.size();
        }

        assertEquals(DeletedTopics.UNTOLD_MAX, kept);
    }
}
