package nextgen.pulsar.loadmanager;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.resources.NamespaceResources;
import org.apache.pulsar.broker.resources.TenantResources;
import org.apache.pulsar.broker.service.TopicPoliciesService.GetType;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.SystemTopicNames;
import org.apache.pulsar.common.naming.TopicDomain;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.Policies;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.metadata.api.Notification;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has the broker read the policies of topics before topics come (ADR 0196).
 *
 * <p>Pulsar opens no topic of a namespace before it has read the policies of all its topics, by a
 * reader of its own that goes on reading. By bundles it begins when a bundle comes; a broker that
 * started a moment ago would begin when the topics of a dead one are at the door.
 */
final class PolicyCaches implements Consumer<Notification> {
    /** Of which policies are read ahead. Each takes a reader; of others, Pulsar reads as it does. */
    static final int NAMESPACES_MAX = 1_000;

    /** Looked at together. One that is not handed over costs a read of the metadata store. */
    static final int LOOKED_AT_ONCE = 100;

    /** Pulsar gives a reader that gets stuck up after a minute; the next namespace does not wait. */
    static final long READ_MS_MAX = 10_000;

    private static final Logger LOG = LoggerFactory.getLogger(PolicyCaches.class);
    private static final String POLICIES = "/admin/policies/";

    private final Pulsar pulsar;
    private final Set<NamespaceName> handedOver = ConcurrentHashMap.newKeySet();
    private final Set<NamespaceName> read = ConcurrentHashMap.newKeySet();

    /** What is asked of the broker. */
    interface Pulsar {
        /** Return all namespaces there are. */
        CompletableFuture<List<NamespaceName>> namespaces();

        /** Return whether a namespace is handed over, by the metadata store and not by a cache. */
        CompletableFuture<Boolean> isHandedOver(NamespaceName namespace);

        /** Return whether there is anything to read: the first topic that is opened makes it. */
        CompletableFuture<Boolean> hasPolicies(NamespaceName namespace);

        /** Read the policies of its topics, unless that is done. */
        CompletableFuture<?> readPolicies(NamespaceName namespace);
    }

    PolicyCaches(Pulsar pulsar) {
        this.pulsar = pulsar;
    }

    static PolicyCaches of(PulsarService broker) {
        return new PolicyCaches(new Broker(broker));
    }

    /** Find the namespaces that are handed over. Blocks. */
    void find() {
        try {
            List<NamespaceName> all = within(pulsar.namespaces());
            for (int from = 0; from < all.size(); from += LOOKED_AT_ONCE) {
                within(CompletableFuture.allOf(
                        all.subList(from, Math.min(all.size(), from + LOOKED_AT_ONCE)).stream()
                                .map(this::look).toArray(CompletableFuture[]::new)));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException | RuntimeException e) {
            LOG.warn("namespaces that are handed over are not known yet: {}", e.toString());
        }
    }

    /** Hear of a namespace that is handed over, or back. */
    @Override
    public void accept(Notification notification) {
        if (NamespaceResources.pathIsFromNamespace(notification.getPath())) {
            look(NamespaceResources.namespaceFromPath(notification.getPath()));
        }
    }

    /**
     * Read what has not been read, or was forgotten, of one namespace after the other. Blocks. Pulsar
     * forgets it with the last bundle that it takes away from this broker.
     */
    void keep() {
        int before = read.size();
        for (NamespaceName namespace : handedOver) {
            try {
                if (within(pulsar.hasPolicies(namespace))) {
                    within(pulsar.readPolicies(namespace));
                    read.add(namespace);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return;
            } catch (ExecutionException | TimeoutException | RuntimeException e) {
                // The first topic that is opened reads them, or is refused with the reason.
                LOG.debug("policies of the topics of {} are not read ahead: {}", namespace, e.toString());
            }
        }
        if (read.size() > before) {
            LOG.info("policies of the topics of {} namespaces are at hand", read.size());
        }
    }

    private CompletableFuture<Void> look(NamespaceName namespace) {
        return pulsar.isHandedOver(namespace).thenAccept(isSo -> {
            if (!isSo) {
                handedOver.remove(namespace);
                read.remove(namespace);
            } else if (handedOver.size() < NAMESPACES_MAX) {
                handedOver.add(namespace);
            }
        });
    }

    private static <T> T within(CompletableFuture<T> answer)
            throws InterruptedException, ExecutionException, TimeoutException {
        return answer.get(READ_MS_MAX, TimeUnit.MILLISECONDS);
    }

    private record Broker(PulsarService broker) implements Pulsar {
        /** Of a topic that nobody has: Pulsar reads those of all topics for whichever it is asked. */
        private static final String ANY = "any";

        @Override
        public CompletableFuture<List<NamespaceName>> namespaces() {
            TenantResources tenants = broker.getPulsarResources().getTenantResources();
            return tenants.listTenantsAsync().thenCompose(names -> {
                List<CompletableFuture<List<String>>> listed = names.stream()
                        .filter(tenant -> !tenant.equals(NamespaceName.SYSTEM_NAMESPACE.getTenant()))
                        .map(tenants::getListOfNamespacesAsync).toList();
                return CompletableFuture.allOf(listed.toArray(CompletableFuture[]::new))
                        .thenApply(done -> listed.stream().flatMap(each -> each.join().stream())
                                .map(NamespaceName::get).toList());
            });
        }

        @Override
        public CompletableFuture<Boolean> isHandedOver(NamespaceName namespace) {
            // A cache would keep the policies of every namespace that there is.
            return broker.getConfigurationMetadataStore().get(POLICIES + namespace)
                    .thenApply(found -> found.isPresent() && isHandedOver(found.get().getValue()));
        }

        private static boolean isHandedOver(byte[] stored) {
            try {
                Policies policies = ObjectMapperFactory.getMapper().reader()
                        .readValue(stored, Policies.class);
                return !policies.deleted && TopicLoadManager.isByTopic(policies.properties);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        @Override
        public CompletableFuture<Boolean> hasPolicies(NamespaceName namespace) {
            return broker.getNamespaceService().checkTopicExistsAsync(
                    topic(namespace, SystemTopicNames.NAMESPACE_EVENTS_LOCAL_NAME)).thenApply(found -> {
                        boolean isThere = found.isExists();
                        found.recycle();
                        return isThere;
                    });
        }

        @Override
        public CompletableFuture<?> readPolicies(NamespaceName namespace) {
            return broker.getTopicPoliciesService()
                    .getTopicPoliciesAsync(topic(namespace, ANY), GetType.LOCAL_ONLY);
        }

        private static TopicName topic(NamespaceName namespace, String name) {
            return TopicName.get(TopicDomain.persistent.value(), namespace, name);
        }
    }
}
