package nextgen.pulsar.loadmanager;

import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.ServiceConfiguration;

/**
 * Keeps namespaces that are handed over out of shedding. Their bundles may have owners from before,
 * and shedding a bundle closes every topic of it that is open at its owner.
 */
final class SheddingExclusions {
    private final ServiceConfiguration configuration;
    private final Set<String> added = ConcurrentHashMap.newKeySet();

    SheddingExclusions(ServiceConfiguration configuration) {
        this.configuration = configuration;
    }

    /** Note how a namespace is placed, at every look. One that the operator excluded stays so. */
    void note(String namespace, boolean byTopic) {
        if (byTopic ? !present().contains(namespace) : added.contains(namespace)) {
            change(namespace, byTopic);
        }
    }

    private synchronized void change(String namespace, boolean byTopic) {
        Set<String> next = new TreeSet<>(present());
        if (byTopic ? next.add(namespace) : next.remove(namespace)) {
            // Others go through the set that is there.
            configuration.setLoadBalancerSheddingExcludedNamespaces(next);
        }
        if (byTopic) {
            added.add(namespace);
        } else {
            added.remove(namespace);
        }
    }

    private Set<String> present() {
        return configuration.getLoadBalancerSheddingExcludedNamespaces();
    }
}
