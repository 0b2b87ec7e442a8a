package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class AbsentTopicsTest {
    private final Set<String> canBeOpened = new HashSet<>();
    private final List<String> asked = new ArrayList<>();
    private final AbsentTopics absent = new AbsentTopics(topic -> {
        asked.add(topic);
        return CompletableFuture.completedFuture(canBeOpened.contains(topic));
    });

    @Test
    void aTopicThatCannotBeOpenedIsFoundAtTheSecondLookAndOnce() {
        canBeOpened.add("there");
        Set<String> assigned = Set.of("there", "absent");

        assertEquals(List.of(), look(assigned, Set.of()));
        assertEquals(List.of("absent"), look(assigned, Set.of()));
        assertEquals(List.of(), look(assigned, Set.of()));
    }

    @Test
    void aTopicThatIsCreatedMeanwhileIsNotFound() {
        look(Set.of("t"), Set.of());
        canBeOpened.add("t");

        assertEquals(List.of(), look(Set.of("t"), Set.of()));
        assertEquals(List.of(), look(Set.of("t"), Set.of()));
    }

    @Test
    void whatIsOpenIsNotLookedAt() {
        look(Set.of("t"), Set.of("t"));

        assertEquals(List.of(), asked);
    }

    @Test
    void aTopicThatWasAssignedAgainIsFoundAgain() {
        look(Set.of("t"), Set.of());
        look(Set.of("t"), Set.of());
        look(Set.of(), Set.of());
        look(Set.of("t"), Set.of());

        assertEquals(List.of("t"), look(Set.of("t"), Set.of()));
    }

    @Test
    void whatCannotBeAskedIsNotAbsent() {
        AbsentTopics failing = new AbsentTopics(
                topic -> CompletableFuture.failedFuture(new IOException("no metadata store")));
        failing.look(Set.of("t"), Set.of()).join();

        assertEquals(List.of(), failing.look(Set.of("t"), Set.of()).join());
    }

    @Test
    void manyTopicsAreLookedAtInTurn() {
        Set<String> assigned = IntStream.range(0, 3 * AbsentTopics.LOOKED_AT_MAX)
                .mapToObj(Integer::toString).collect(Collectors.toSet());
        canBeOpened.addAll(assigned);
        for (int look = 1; look <= 3; look++) {
            look(assigned, Set.of());
            assertTrue(asked.size() <= look * AbsentTopics.LOOKED_AT_MAX);
        }

        assertEquals(assigned, Set.copyOf(asked));
    }

    private List<String> look(Set<String> assigned, Set<String> open) {
        return absent.look(assigned, open).join();
    }
}
