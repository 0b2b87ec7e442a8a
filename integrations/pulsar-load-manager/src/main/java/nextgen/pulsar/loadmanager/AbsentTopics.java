package nextgen.pulsar.loadmanager;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * Finds topics that are assigned to this broker and can never be opened here: Pulsar does not have
 * them, and does not create them on demand, or it has them with partitions.
 *
 * <p>Looks at some of those that are not open, in turn, so that many of them cost no more. A topic is
 * found at the second look: it may have been about to be created at the first.
 */
final class AbsentTopics {
    static final int LOOKED_AT_MAX = 100;

    private final Function<String, CompletableFuture<Boolean>> canBeOpened;
    private final Set<String> suspected = ConcurrentHashMap.newKeySet();
    private final Set<String> found = ConcurrentHashMap.newKeySet();
    private Iterator<String> next = List.<String>of().iterator();

    AbsentTopics(Function<String, CompletableFuture<Boolean>> canBeOpened) {
        this.canBeOpened = canBeOpened;
    }

    /** Look on, one look at a time. Return, later, those that were found and were not before. */
    CompletableFuture<List<String>> look(Set<String> assigned, Set<String> open) {
        suspected.retainAll(assigned);
        found.retainAll(assigned);
        List<String> looked = new ArrayList<>(suspected);
        if (!next.hasNext()) {
            next = assigned.iterator();
        }
        while (next.hasNext() && looked.size() < LOOKED_AT_MAX) {
            String topic = next.next();
            if (!open.contains(topic) && !found.contains(topic) && !suspected.contains(topic)) {
                looked.add(topic);
            }
        }
        List<CompletableFuture<Boolean>> asked = looked.stream()
                .map(topic -> canBeOpened.apply(topic).exceptionally(error -> true)).toList();
        return CompletableFuture.allOf(asked.toArray(CompletableFuture[]::new)).thenApply(done -> {
            List<String> absent = new ArrayList<>();
            for (int number = 0; number < looked.size(); number++) {
                take(looked.get(number), asked.get(number).join(), absent);
            }
            return absent;
        });
    }

    private void take(String topic, boolean canBe, List<String> absent) {
        if (canBe) {
            suspected.remove(topic);
        } else if (suspected.remove(topic)) {
            found.add(topic);
            absent.add(topic);
        } else if (suspected.size() < LOOKED_AT_MAX) {
            suspected.add(topic);
        }
    }
}
