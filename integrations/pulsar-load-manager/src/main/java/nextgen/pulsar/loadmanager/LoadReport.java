package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.loadbalance.BrokerHostUsage;
import org.apache.pulsar.broker.loadbalance.impl.LinuxBrokerHostUsageImpl;
import org.apache.pulsar.broker.loadbalance.impl.LoadManagerShared;
import org.apache.pulsar.broker.service.PulsarStats;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.stats.BrokerStats;
import org.apache.pulsar.common.policies.data.stats.TopicStatsImpl;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;

/** Measures this broker for the cluster: what it uses, and the busiest of the topics placed by topic. */
final class LoadReport {
    private static final long INTERVAL_MS = 5_000;
    private static final int BUSIEST_MAX = 64;
    private static final int MEASURED_MAX = 2_000;
    private static final double PERCENT = 100.0;
    private static final long MEBIBYTE = 1024 * 1024;

    private final PulsarService pulsar;
    private final Predicate<String> isPlacedByTopic;
    private final BrokerHostUsage hostUsage;
    private long measuredAt = System.nanoTime();

    LoadReport(PulsarService pulsar, Predicate<String> isPlacedByTopic) {
        this.pulsar = pulsar;
        this.isPlacedByTopic = isPlacedByTopic;
        this.hostUsage = new LinuxBrokerHostUsageImpl(pulsar);
    }

    boolean isDue(long now) {
        return now - measuredAt >= TimeUnit.MILLISECONDS.toNanos(INTERVAL_MS);
    }

    ObjectNode measure(long now) {
        measuredAt = now;
        SystemResourceUsage use = LoadManagerShared.getSystemResourceUsage(hostUsage);
        ResourceUsage cpu = use.getCpu();
        ResourceUsage memory = use.getMemory();
        ObjectNode report = Messages.message("load")
                .put("cpu_fraction", Math.max(0, cpu.usage / PERCENT))
                .put("cores", Runtime.getRuntime().availableProcessors())
                .put("memory_bytes", (long) (memory.usage * MEBIBYTE))
                .put("memory_limit_bytes", (long) (memory.limit * MEBIBYTE))
                .put("connections", 0);
        PulsarStats stats = pulsar.getBrokerService().getPulsarStats();
        synchronized (stats) {
            BrokerStats broker = stats.getBrokerStats();
            report.put("open_topics", broker.topics)
                    .put("producers", broker.producerCount)
                    .put("consumers", broker.consumerCount);
            putRates(report, broker.msgRateIn, broker.msgRateOut,
                    broker.msgThroughputIn, broker.msgThroughputOut);
        }
        ArrayNode busiest = report.putArray("busiest");
        for (TopicLoad each : busiestTopics()) {
            ObjectNode topic = busiest.addObject().put("topic", each.name)
                    .put("producers", each.stats.getPublishers().size())
                    .put("consumers", each.stats.getSubscriptions().values().stream()
                            .mapToInt(subscription -> subscription.getConsumers().size()).sum());
            putRates(topic, each.stats.msgRateIn, each.stats.msgRateOut,
                    each.stats.msgThroughputIn, each.stats.msgThroughputOut);
        }
        return report;
    }

    private List<TopicLoad> busiestTopics() {
        return pulsar.getBrokerService().getTopics().entrySet().stream()
                .filter(each -> isPlacedByTopic.test(each.getKey()))
                .map(each -> opened(each.getValue()))
                .flatMap(Optional::stream)
                .limit(MEASURED_MAX)
                .map(topic -> new TopicLoad(topic.getName(), topic.getStats(false, false, false)))
                .filter(each -> each.bytesPerSecond() > 0)
                .sorted(Comparator.comparingDouble(TopicLoad::bytesPerSecond).reversed())
                .limit(BUSIEST_MAX)
                .toList();
    }

    private static Optional<Topic> opened(CompletableFuture<Optional<Topic>> topic) {
        return topic.isDone() && !topic.isCompletedExceptionally() ? topic.join() : Optional.empty();
    }

    private static void putRates(ObjectNode node, double in, double out, double bytesIn, double bytesOut) {
        node.put("messages_in", Math.max(0, in)).put("messages_out", Math.max(0, out))
                .put("bytes_in", Math.max(0, bytesIn)).put("bytes_out", Math.max(0, bytesOut));
    }

    private record TopicLoad(String name, TopicStatsImpl stats) {
        private double bytesPerSecond() {
            return stats.msgThroughputIn + stats.msgThroughputOut;
        }
    }
}
