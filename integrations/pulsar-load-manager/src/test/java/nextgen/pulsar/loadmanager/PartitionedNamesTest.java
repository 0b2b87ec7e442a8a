package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.common.naming.TopicName;
import org.junit.jupiter.api.Test;

class PartitionedNamesTest {
    private static final TopicName WHOLE = TopicName.get("persistent://acme/orders/eu");
    private static final TopicName FIRST = WHOLE.getPartition(0);
    private static final TopicName SECOND = WHOLE.getPartition(1);

    private final Map<TopicName, Integer> inPulsar = new HashMap<>();
    private final Set<String> owned = new HashSet<>();
    private final List<TopicName> read = new ArrayList<>();
    private final PartitionedNames names = new PartitionedNames(name -> {
        read.add(name);
        return CompletableFuture.completedFuture(inPulsar.getOrDefault(name, 0));
    });

    @Test
    void theFirstPartitionAnswersForTheWhole() {
        inPulsar.put(WHOLE, 2);

        assertEquals(FIRST, names.answering(WHOLE).join());
        assertEquals(SECOND, names.answering(SECOND).join());
        assertEquals(List.of(WHOLE), read);
    }

    @Test
    void aTopicWithoutPartitionsAnswersForItself() {
        assertEquals(WHOLE, names.answering(WHOLE).join());
    }

    @Test
    void theWholeIsOwnedWhereItsFirstPartitionIs() {
        inPulsar.put(WHOLE, 2);
        owned.add(SECOND.toString());
        assertFalse(isOwned(WHOLE));

        owned.add(FIRST.toString());
        assertTrue(isOwned(WHOLE));
        assertTrue(isOwned(FIRST));
        assertTrue(isOwned(SECOND));
    }

    @Test
    void aTopicIsNotOwnedBecauseAnotherIsNamedLikeItsPartition() {
        owned.add(FIRST.toString());

        assertFalse(isOwned(WHOLE));
        assertEquals(List.of(WHOLE), read);
    }

    @Test
    void otherNamesAreAnsweredWithoutAReadOfPulsarsMetadata() {
        owned.add("persistent://acme/orders/us");

        assertTrue(isOwned(TopicName.get("persistent://acme/orders/us")));
        assertFalse(isOwned(WHOLE));
        assertFalse(isOwned(FIRST));
        assertEquals(List.of(), read);
    }

    private boolean isOwned(TopicName name) {
        return names.isAnsweredBy(owned::contains, name).join();
    }
}
