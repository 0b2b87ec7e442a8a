package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.Set;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.junit.jupiter.api.Test;

class SheddingExclusionsTest {
    private final ServiceConfiguration configuration = new ServiceConfiguration();
    private final SheddingExclusions shedding = new SheddingExclusions(configuration);

    @Test
    void aNamespaceIsExcludedWhileItIsPlacedByTopic() {
        shedding.note("acme/orders", true);
        assertEquals(Set.of("acme/orders"), excluded());

        shedding.note("acme/stays", false);
        shedding.note("acme/orders", false);
        assertEquals(Set.of(), excluded());
    }

    @Test
    void whatTheOperatorExcludedStaysExcluded() {
        configuration.setLoadBalancerSheddingExcludedNamespaces(Set.of("acme/orders", "acme/more"));

        shedding.note("acme/orders", true);
        shedding.note("acme/orders", false);

        assertEquals(Set.of("acme/orders", "acme/more"), excluded());
    }

    @Test
    void aSettingThatTheOperatorChangesGetsItAgain() {
        shedding.note("acme/orders", true);
        configuration.setLoadBalancerSheddingExcludedNamespaces(Set.of("acme/more"));

        shedding.note("acme/orders", true);

        assertEquals(Set.of("acme/orders", "acme/more"), excluded());
    }

    @Test
    void nothingIsReplacedThatIsRight() {
        shedding.note("acme/orders", true);
        Set<String> before = excluded();

        shedding.note("acme/orders", true);

        assertSame(before, excluded());
    }

    private Set<String> excluded() {
        return configuration.getLoadBalancerSheddingExcludedNamespaces();
    }
}
