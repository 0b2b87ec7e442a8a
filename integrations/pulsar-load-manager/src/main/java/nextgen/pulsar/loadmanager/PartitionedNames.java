package nextgen.pulsar.loadmanager;

import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.pulsar.common.naming.TopicName;

/**
 * Names of topics with partitions. Such a name is no topic and is assigned to nobody, but operations
 * on the topic as a whole ask for its owner. The broker of partition 0 answers for it, as Pulsar
 * itself has it for policies of topics, so that it is one broker at a time.
 *
 * <p>Pulsar refuses to open a topic under such a name at any broker.
 */
final class PartitionedNames {
    private final Function<TopicName, CompletableFuture<Integer>> partitions;

    /** {@code partitions} returns how many partitions Pulsar has for a name, 0 for none. */
    PartitionedNames(Function<TopicName, CompletableFuture<Integer>> partitions) {
        this.partitions = partitions;
    }

    /** Return the topic whose broker answers for a name: the one of that name, or partition 0. */
    CompletableFuture<TopicName> answering(TopicName name) {
        if (name.isPartitioned()) {
            return CompletableFuture.completedFuture(name);
        }
        return partitions.apply(name).thenApply(count -> count > 0 ? name.getPartition(0) : name);
    }

    /** Return whether a topic of this name, or the one that answers for it, is owned. */
    CompletableFuture<Boolean> isAnsweredBy(Predicate<String> owns, TopicName name) {
        if (owns.test(name.toString())) {
            return CompletableFuture.completedFuture(true);
        }
        // Most names are neither, and cost no read of Pulsar's metadata.
        if (!mayBeAnsweredBy(owns, name)) {
            return CompletableFuture.completedFuture(false);
        }
        return answering(name).thenApply(answering -> owns.test(answering.toString()));
    }

    /** As {@link #isAnsweredBy}, of a name that Pulsar may have no more. */
    static boolean mayBeAnsweredBy(Predicate<String> owns, TopicName name) {
        return owns.test(name.toString())
                || !name.isPartitioned() && owns.test(name.getPartition(0).toString());
    }
}
