package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryUsage;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.broker.stats.BrokerOperabilityMetrics;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.stats.JvmMetrics;
import org.apache.pulsar.common.util.DirectMemoryUtils;

/**
 * Measures this broker for the cluster: what its process uses, its traffic, the busiest of the topics
 * that are placed one by one, and which of them are in use.
 *
 * <p>Rates are between two measurements, from counters that Pulsar keeps for each topic.
 */
final class LoadReport {
    private static final int BUSIEST_MAX = 64;
    private static final String CONNECTIONS = "brk_active_connections";

    private final BrokerService broker;
    private final Predicate<String> isPlacedByTopic;
    private final OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private Map<String, Traffic> counted = Map.of();
    private long measuredAt;
    private long processorNs;

    LoadReport(BrokerService broker, Predicate<String> isPlacedByTopic) {
        this.broker = broker;
        this.isPlacedByTopic = isPlacedByTopic;
    }

    /** What was measured: the message about it, and whether each topic placed by itself is in use. */
    record Measured(ObjectNode load, Map<String, Boolean> uses) {
    }

    Measured measure(long now) {
        double seconds = (now - measuredAt) / (double) TimeUnit.SECONDS.toNanos(1);
        boolean isFirst = measuredAt == 0;
        measuredAt = now;
        Map<String, Traffic> counts = new HashMap<>();
        Map<String, Boolean> uses = new HashMap<>();
        List<TopicLoad> busy = new ArrayList<>();
        Traffic all = Traffic.NONE;
        int topics = 0;
        int producers = 0;
        int consumers = 0;
        for (CompletableFuture<Optional<Topic>> each : broker.getTopics().values()) {
            Topic topic = opened(each).orElse(null);
            if (topic == null) {
                continue;
            }
            String name = topic.getName();
            TopicLoad load = new TopicLoad(name, topic.getProducers().size(), consumersOf(topic),
                    rates(counts, name, Traffic.countedBy(topic), isFirst, seconds));
            topics++;
            producers += load.producers;
            consumers += load.consumers;
            all = all.plus(load.traffic);
            if (isPlacedByTopic.test(name)) {
                uses.put(name, load.producers + load.consumers > 0 || hasUpkeep(topic));
                if (load.traffic.bytesBothWays() > 0) {
                    busy.add(load);
                }
            }
        }
        counted = counts;
        ObjectNode report = Messages.message("load")
                .put("open_topics", topics)
                .put("connections", connections())
                .put("producers", producers)
                .put("consumers", consumers);
        putProcess(report, isFirst ? 0 : seconds);
        putRates(report, all);
        putBusiest(report, busy);
        return new Measured(report, uses);
    }

    /**
     * Return whether Pulsar has still to drop messages of a topic by their age, which it does only
     * while the topic is open.
     */
    private static boolean hasUpkeep(Topic topic) {
        if (!(topic instanceof PersistentTopic stored)
                || stored.getManagedLedger().getNumberOfEntries() == 0) {
            return false;
        }
        Integer ttl = topic.getHierarchyTopicPolicies().getMessageTTLInSeconds().get();
        RetentionPolicies kept = topic.getHierarchyTopicPolicies().getRetentionPolicies().get();
        return ttl != null && ttl > 0 || kept != null && kept.getRetentionTimeInMinutes() > 0;
    }

    private Traffic rates(Map<String, Traffic> counts, String topic, Traffic now, boolean isFirst,
            double seconds) {
        counts.put(topic, now);
        return isFirst ? Traffic.NONE : now.since(counted.getOrDefault(topic, Traffic.NONE), seconds);
    }

    private static int consumersOf(Topic topic) {
        return topic.getSubscriptions().values().stream()
                .mapToInt(each -> each.getConsumers().size()).sum();
    }

    private static Optional<Topic> opened(CompletableFuture<Optional<Topic>> topic) {
        return topic.isDone() && !topic.isCompletedExceptionally() ? topic.join() : Optional.empty();
    }

    private long connections() {
        BrokerOperabilityMetrics counts = broker.getPulsarStats().getBrokerOperabilityMetrics();
        Object active = counts.generateConnectionMetrics().getMetrics().get(CONNECTIONS);
        return active instanceof Number number ? Math.max(0, number.longValue()) : 0;
    }

    private void putProcess(ObjectNode report, double seconds) {
        long before = processorNs;
        processorNs = system.getProcessCpuTime();
        double cores = seconds > 0
                ? (processorNs - before) / seconds / TimeUnit.SECONDS.toNanos(1) : 0;
        // The fuller of both: each alone stops a broker. Garbage that waits is no use of the heap.
        long heapLimit = Runtime.getRuntime().maxMemory();
        long heap = Math.min(liveHeapBytes(), heapLimit);
        long directLimit = DirectMemoryUtils.jvmMaxDirectMemory();
        long direct = Math.max(0, Math.min(JvmMetrics.getJvmDirectMemoryUsed(), directLimit));
        boolean isHeap = (double) heap * directLimit >= (double) direct * heapLimit;
        report.put("cpu_fraction", Math.max(0, cores))
                .put("cores", Runtime.getRuntime().availableProcessors())
                .put("memory_bytes", isHeap ? heap : direct)
                .put("memory_limit_bytes", isHeap ? heapLimit : directLimit);
    }

    /** Return what the last collection of each part of the heap has left. */
    private static long liveHeapBytes() {
        long bytes = 0;
        for (MemoryPoolMXBean each : ManagementFactory.getMemoryPoolMXBeans()) {
            MemoryUsage left = each.getCollectionUsage();
            bytes += left == null ? 0 : left.getUsed();
        }
        return bytes;
    }

    private static void putBusiest(ObjectNode report, List<TopicLoad> busy) {
        busy.sort(Comparator.comparingDouble((TopicLoad each) -> each.traffic.bytesBothWays()).reversed());
        ArrayNode busiest = report.putArray("busiest");
        for (TopicLoad each : busy.subList(0, Math.min(BUSIEST_MAX, busy.size()))) {
            putRates(busiest.addObject().put("topic", each.name)
                    .put("producers", each.producers)
                    .put("consumers", each.consumers), each.traffic);
        }
    }

    private static void putRates(ObjectNode node, Traffic rates) {
        node.put("messages_in", rates.messagesIn()).put("messages_out", rates.messagesOut())
                .put("bytes_in", rates.bytesIn()).put("bytes_out", rates.bytesOut());
    }

    private record TopicLoad(String name, int producers, int consumers, Traffic traffic) {
    }
}
