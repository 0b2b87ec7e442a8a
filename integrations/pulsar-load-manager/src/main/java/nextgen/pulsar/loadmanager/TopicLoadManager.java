package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarServerException;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.ServiceUnitId;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.util.FutureUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A load manager that has no rules: topics of namespaces that are handed over are where the cluster
 * says, one by one. All other namespaces are Pulsar's, by bundles, as before.
 *
 * <p>A namespace is handed over by a property of its own, {@value #PROPERTY}, which every broker has
 * from Pulsar's metadata store. {@value #SOCKET} of the broker's configuration is the path of the
 * socket on which the sidecar commands this broker.
 */
public class TopicLoadManager extends ExtensibleLoadManagerImpl implements Orders {
    static final String PROPERTY = "nextgen.placement";
    static final String BY_TOPIC = "topic";
    static final String SOCKET = "nextgenSidecarSocket";

    private static final Logger LOG = LoggerFactory.getLogger(TopicLoadManager.class);
    private static final long TICK_MS = 500;
    private static final long MEASURE_MS = 5_000;
    /** How long policies may be missing that Pulsar has forgotten. */
    private static final long READ_MS = 10_000;
    private static final String ASKS_FOR_CHECK = "nextgen";

    private final Assignments assignments =
            new Assignments(() -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime()));
    private final ScheduledExecutorService ticking = thread("nextgen-tick");
    private final ScheduledExecutorService measuring = thread("nextgen-measure");
    private final ScheduledExecutorService reading = thread("nextgen-policies");
    private final TopicUses uses = new TopicUses();
    private final AbsentTopics absent = new AbsentTopics(this::canBeOpened);
    private final TopicArrivals arrivals = new TopicArrivals(this::load);
    private final DeletedTopics deleted = new DeletedTopics(this::reportsEndOf, this::existsInPulsar);
    private final PartitionedNames partitioned = new PartitionedNames(this::partitionsInPulsar);
    private PulsarService pulsar;
    private Release release;
    private SheddingExclusions shedding;
    private volatile SidecarLink sidecar;
    private TopicMover mover;
    private Handover handover;
    private TopicPreparation preparation;
    private MetadataFlushes flushes;
    private LoadReport load;
    private PolicyCaches policies;
    private boolean stops;
    private volatile boolean hasNewSession;
    private CompletableFuture<?> looking = CompletableFuture.completedFuture(null);
    private volatile long tickedAt;
    private volatile boolean hadSession;

    @Override
    public void initialize(PulsarService service) {
        super.initialize(service);
        pulsar = service;
        shedding = new SheddingExclusions(service.getConfiguration());
    }

    @Override
    public void start() throws PulsarServerException {
        super.start();
        Object path = pulsar.getConfiguration().getProperties().get(SOCKET);
        if (path == null) {
            throw new PulsarServerException(SOCKET + " is missing in the broker's configuration");
        }
        try {
            release = Release.installed();
        } catch (IOException e) {
            throw new PulsarServerException(e);
        }
        pulsar.runWhenReadyForIncomingRequests(() -> listen(Path.of(path.toString())));
    }

    private void listen(Path path) {
        mover = new TopicMover(pulsar.getBrokerService(),
                new PendingWrites(pulsar.getBrokerService().executor()));
        preparation = new TopicPreparation(pulsar);
        flushes = new MetadataFlushes(MetadataFlushes.of(pulsar.getLocalMetadataStore(),
                pulsar.getConfiguration().isMetadataStoreBatchingEnabled()), thread("nextgen-flush"));
        handover = new Handover(pulsar, this, mover);
        policies = PolicyCaches.of(pulsar);
        // Topics may be assigned a moment before their namespace is placed by topic.
        load = new LoadReport(pulsar.getBrokerService(),
                topic -> assignments.owns(topic) || isPlacedByTopic(topic));
        pulsar.getLocalMetadataStore().registerListener(arrivals);
        pulsar.getLocalMetadataStore().registerListener(deleted);
        if (pulsar.getConfigurationMetadataStore() != pulsar.getLocalMetadataStore()) {
            pulsar.getConfigurationMetadataStore().registerListener(deleted);
        }
        pulsar.getConfigurationMetadataStore().registerListener(policies);
        SelfCheck.run(() -> pulsar.runHealthCheck(ASKS_FOR_CHECK), SelfCheck.MS_MAX)
                .thenRunAsync(() -> obey(path), measuring);
    }

    /** Take orders, unless the broker stops already. */
    private synchronized void obey(Path path) {
        if (stops) {
            return;
        }
        try {
            sidecar = new SidecarLink(path, this, this::greeting);
        } catch (IOException e) {
            LOG.error("no sidecar can command this broker, {} cannot be used: {}", path, e.toString());
            return;
        }
        tickedAt = System.nanoTime();
        // Not Pulsar's executor of load managers, whose only thread waits for system topics at times.
        ticking.scheduleWithFixedDelay(this::tick, TICK_MS, TICK_MS, TimeUnit.MILLISECONDS);
        // Not between two ticks, whose absence would end the session.
        measuring.scheduleWithFixedDelay(this::report, 0, MEASURE_MS, TimeUnit.MILLISECONDS);
        // Not between two reports: a reader may take seconds.
        reading.scheduleWithFixedDelay(this::keepPolicies, READ_MS, READ_MS, TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() throws PulsarServerException {
        closeSidecar();
        super.close();
    }

    // Pulsar asks ---------------------------------------------------------------------------

    @Override
    public CompletableFuture<Optional<BrokerLookupData>> assign(
            Optional<ServiceUnitId> topic, ServiceUnitId bundle, LookupOptions options) {
        if (topic.isPresent() && topic.get() instanceof TopicName name) {
            return isHandedOver(name.getNamespaceObject()).thenCompose(byTopic -> byTopic
                    ? locate(name)
                    : super.assign(topic, bundle, options));
        }
        return isHandedOver(bundle.getNamespaceObject()).thenCompose(byTopic -> byTopic
                // Nobody owns a bundle of it; whoever is asked can answer for the namespace.
                ? here()
                : super.assign(topic, bundle, options));
    }

    @Override
    public CompletableFuture<Boolean> checkOwnershipAsync(
            Optional<ServiceUnitId> topic, ServiceUnitId bundle) {
        if (topic.isPresent() && topic.get() instanceof TopicName name) {
            return isHandedOver(name.getNamespaceObject()).thenCompose(byTopic -> byTopic
                    ? isOwned(name)
                    : super.checkOwnershipAsync(topic, bundle));
        }
        return isHandedOver(bundle.getNamespaceObject()).thenCompose(byTopic -> byTopic
                ? CompletableFuture.completedFuture(true)
                : super.checkOwnershipAsync(topic, bundle));
    }

    @Override
    public CompletableFuture<Void> unloadNamespaceBundleAsync(ServiceUnitId bundle,
            Optional<String> destination, boolean force, long timeout, TimeUnit unit) {
        return isHandedOver(bundle.getNamespaceObject()).thenCompose(byTopic -> byTopic
                ? refuseBundle(bundle)
                : super.unloadNamespaceBundleAsync(bundle, destination, force, timeout, unit));
    }

    @Override
    public CompletableFuture<Void> splitNamespaceBundleAsync(ServiceUnitId bundle,
            NamespaceBundleSplitAlgorithm algorithm, List<Long> boundaries) {
        return isHandedOver(bundle.getNamespaceObject()).thenCompose(byTopic -> byTopic
                ? refuseBundle(bundle)
                : super.splitNamespaceBundleAsync(bundle, algorithm, boundaries));
    }

    @Override
    public void disableBroker() throws Exception {
        // Without the sidecar's connection the session ends at once, and others get the topics.
        closeSidecar();
        assignments.end();
        closeTopics();
        super.disableBroker();
    }

    // The sidecar orders --------------------------------------------------------------------

    @Override
    public void session(String node, String sessionId, long epoch, long ttlMs) {
        boolean isAnother = assignments.begin(node, sessionId, epoch, ttlMs);
        hadSession = true;
        if (isAnother) {
            hasNewSession = true;
            LOG.info("session {} began, topics of earlier ones are looked up", sessionId);
            openTopics().forEach(this::locateStray);
            reading.execute(policies::find);
            reading.execute(this::keepPolicies);
        }
    }

    @Override
    public void alive() {
        assignments.alive();
    }

    @Override
    public void prepare(String topic) {
        arrivals.expect(topic, preparation.prepare(topic));
    }

    @Override
    public void assign(String topic, long epoch) {
        assignments.assign(topic, epoch);
        arrivals.assigned(topic);
    }

    @Override
    public void release(String topic, long epoch, String urls) {
        if (!assignments.release(topic, epoch)) {
            return;
        }
        // Of a namespace that is being handed over, or back, it may be open as Pulsar's own.
        isHandedOver(TopicName.get(topic).getNamespaceObject()).thenAccept(byTopic -> {
            if (byTopic) {
                lookupDataOf(urls).thenAccept(next -> flushes.during(mover.close(topic, next)));
            }
        });
    }

    @Override
    public void listOpen(long number, String namespace) {
        handover.openTopics(number, NamespaceName.get(namespace))
                .thenAccept(pages -> pages.forEach(sidecar::send));
    }

    @Override
    public void closeForeign(long number, List<String> topics) {
        handover.closeForeign(number, topics).thenAccept(sidecar::send);
    }

    // Inside --------------------------------------------------------------------------------

    CompletableFuture<Boolean> isHandedOver(NamespaceName namespace) {
        if (NamespaceName.SYSTEM_NAMESPACE.getTenant().equals(namespace.getTenant())) {
            return CompletableFuture.completedFuture(false);
        }
        return pulsar.getPulsarResources().getNamespaceResources().getPoliciesAsync(namespace)
                .thenApply(found -> found.isPresent() && isByTopic(found.get().properties))
                .thenApply(byTopic -> {
                    shedding.note(namespace.toString(), byTopic);
                    return byTopic;
                });
    }

    /** Return whether a topic that is open here is placed by topic: its policies are in the cache. */
    private boolean isPlacedByTopic(String topic) {
        return isHandedOver(TopicName.get(topic).getNamespaceObject()).getNow(false);
    }

    static boolean isByTopic(Map<String, String> properties) {
        return properties != null && BY_TOPIC.equals(properties.get(PROPERTY));
    }

    private CompletableFuture<Optional<BrokerLookupData>> locate(TopicName topic) {
        if (assignments.owns(topic.toString())) {
            return here();
        }
        SidecarLink link = sidecar;
        if (link == null) {
            return CompletableFuture.failedFuture(notYet(topic, "no sidecar yet"));
        }
        // The cluster may not know that the topic has partitions, and would create one of its name.
        return partitioned.answering(topic).thenApply(TopicName::toString)
                .thenCompose(answering -> assignments.owns(answering) ? here()
                        : link.lookUp(answering).thenCompose(at -> lookupDataOf(at.urls())))
                .exceptionallyCompose(error -> CompletableFuture.failedFuture(
                        notYet(topic, FutureUtil.unwrapCompletionException(error).getMessage())));
    }

    /**
     * Return whether this broker answers for a topic. Before it refuses one, it carries out what the
     * sidecar has sent: a client may come with an answer that was given a moment before the assignment
     * was read here (ADR 0192).
     */
    private CompletableFuture<Boolean> isOwned(TopicName name) {
        SidecarLink link = sidecar;
        return partitioned.isAnsweredBy(assignments::owns, name).thenCompose(isOwned -> isOwned
                || link == null || assignments.isOver()
                ? CompletableFuture.completedFuture(isOwned)
                : link.ping()
                        .exceptionally(noAnswer -> null)
                        // Not in the thread that reads what the sidecar sends.
                        .thenComposeAsync(
                                read -> partitioned.isAnsweredBy(assignments::owns, name),
                                pulsar.getExecutor()));
    }

    private CompletableFuture<Optional<BrokerLookupData>> here() {
        return getBrokerRegistry().lookupAsync(getBrokerRegistry().getBrokerId());
    }

    /** The one exception that Pulsar answers so that every client repeats its lookup. */
    private static IllegalStateException notYet(TopicName topic, String why) {
        return new IllegalStateException("topic " + topic + " is not located: " + why);
    }

    private CompletableFuture<Optional<BrokerLookupData>> lookupDataOf(String text) {
        ServiceUrls urls = ServiceUrls.parse(text);
        if (urls.plain() == null && urls.tls() == null) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        return getBrokerRegistry().getAvailableBrokerLookupDataAsync().thenApply(brokers ->
                Optional.of(brokers.values().stream().filter(urls::areOf).findFirst()
                        .orElseGet(() -> BrokersElsewhere.at(urls))));
    }

    private Iterable<String> openTopics() {
        return pulsar.getBrokerService().getTopics().keySet().stream()
                .filter(this::isPlacedByTopic).toList();
    }

    private void closeTopics() {
        // A broker that stops before it has started has neither topics nor a mover.
        openTopics().forEach(topic -> mover.close(topic, Optional.empty()));
    }

    private void locateStray(String topic) {
        sidecar.lookUp(topic).whenComplete((located, error) -> {
            if (!assignments.owns(topic) && error == null) {
                lookupDataOf(located.urls()).thenAccept(next -> mover.close(topic, next));
            }
        });
    }

    /** Load a topic that has moved here. If that fails, so it does for its clients, who try again. */
    private void load(String topic, Map<String, String> properties) {
        if (!assignments.owns(topic)) {
            return;
        }
        LOG.info("topic {} is loaded: its former broker has closed it", topic);
        TopicName name = TopicName.get(topic);
        // Of a partition Pulsar reads other properties, and has them in a cache.
        Map<String, String> known = name.isPartitioned() ? null : properties;
        // Not in the thread that brings all answers of the metadata store.
        pulsar.getExecutor().execute(() ->
                flushes.during(pulsar.getBrokerService().getTopic(name, false, known)));
    }

    private static CompletableFuture<Void> refuseBundle(ServiceUnitId bundle) {
        return CompletableFuture.failedFuture(new IllegalStateException("bundle " + bundle
                + " decides nothing: topics of its namespace are placed one by one"));
    }

    private synchronized void closeSidecar() {
        stops = true;
        ticking.shutdownNow();
        measuring.shutdownNow();
        reading.shutdownNow();
        try {
            if (sidecar != null) {
                sidecar.close();
            }
        } catch (IOException e) {
            LOG.warn("closing the sidecar's socket: {}", e.toString());
        }
    }

    private void tick() {
        try {
            long now = System.nanoTime();
            long passedMs = TimeUnit.NANOSECONDS.toMillis(now - tickedAt);
            tickedAt = now;
            if (hadSession && (assignments.isOver() || passedMs > TICK_MS * 6)) {
                hadSession = false;
                assignments.end();
                LOG.warn("the session is over: this broker serves no topic of namespaces that are "
                        + "handed over until the next one");
                closeTopics();
            }
            sidecar.send(Messages.message("alive"));
            reportDeleted();
        } catch (RuntimeException e) {
            LOG.warn("a tick failed", e);
        }
    }

    private void report() {
        try {
            if (hasNewSession) {
                hasNewSession = false;
                uses.forget();
            }
            LoadReport.Measured measured = load.measure(System.nanoTime());
            if (sidecar.send(measured.load())) {
                uses.changes(measured.uses()).forEach(sidecar::send);
            }
            if (looking.isDone()) {
                looking = absent.look(assignments.topics(), measured.uses().keySet())
                        .thenAccept(found -> sendTopics("absent", found));
            }
        } catch (RuntimeException e) {
            LOG.warn("this broker could not be measured", e);
        }
    }

    private void keepPolicies() {
        // Without a session nobody says where their topic is.
        if (!assignments.isOver()) {
            policies.keep();
        }
    }

    private void reportDeleted() {
        if (assignments.isOver()) {
            return;
        }
        List<String> topics = deleted.take();
        if (!sendTopics("deleted", topics)) {
            deleted.putBack(topics);
        }
    }

    private boolean sendTopics(String kind, List<String> topics) {
        if (topics.isEmpty()) {
            return true;
        }
        ObjectNode message = Messages.message(kind);
        topics.forEach(message.putArray("topics")::add);
        return sidecar.send(message);
    }

    /** Return whether this broker reports the end of a topic: its owner does, and Pulsar's leader. */
    private boolean reportsEndOf(String topic) {
        return PartitionedNames.mayBeAnsweredBy(assignments::owns, TopicName.get(topic))
                || getLeaderElectionService().isLeader();
    }

    private CompletableFuture<Integer> partitionsInPulsar(TopicName topic) {
        return pulsar.getBrokerService().fetchPartitionedTopicMetadataAsync(topic)
                .thenApply(metadata -> metadata.partitions);
    }

    private CompletableFuture<Boolean> existsInPulsar(String text) {
        TopicName topic = TopicName.get(text);
        return isHandedOver(topic.getNamespaceObject()).thenCompose(byTopic -> byTopic
                ? pulsar.getPulsarResources().getTopicResources().persistentTopicExists(topic)
                // The end of another namespace's topic is nothing to report.
                : CompletableFuture.completedFuture(true)).thenCompose(isThere -> isThere
                        ? CompletableFuture.completedFuture(true)
                        : pulsar.getPulsarResources().getNamespaceResources()
                                .getPartitionedTopicResources().partitionedTopicExistsAsync(topic));
    }

    private CompletableFuture<Boolean> canBeOpened(String text) {
        TopicName topic = TopicName.get(text);
        if (!topic.isPersistent()) {
            return CompletableFuture.completedFuture(true);
        }
        return partitioned.answering(topic).thenCompose(answering -> answering.equals(topic)
                ? existsOrIsCreated(topic)
                // Discovery took the name of a topic with partitions for a topic of that name.
                : CompletableFuture.completedFuture(false));
    }

    private CompletableFuture<Boolean> existsOrIsCreated(TopicName topic) {
        return pulsar.getPulsarResources().getTopicResources().persistentTopicExists(topic)
                .thenCompose(isThere -> isThere
                        ? CompletableFuture.completedFuture(true)
                        : pulsar.getBrokerService().isAllowAutoTopicCreationAsync(topic));
    }

    private static ScheduledExecutorService thread(String name) {
        return Executors.newSingleThreadScheduledExecutor(work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    private ObjectNode greeting() {
        BrokerLookupData self = getBrokerRegistry().lookupAsync(getBrokerRegistry().getBrokerId())
                .join().orElseThrow();
        return Messages.message("hello")
                .put("broker", getBrokerRegistry().getBrokerId())
                .put("urls", ServiceUrls.of(self))
                .put("web", ServiceUrls.joined(self.webServiceUrl(), self.webServiceUrlTls()))
                .put("plugin", release.plugin())
                .put("built_for", release.pulsar())
                .put("version", pulsar.getBrokerVersion());
    }
}
