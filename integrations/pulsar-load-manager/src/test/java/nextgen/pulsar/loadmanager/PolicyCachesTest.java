package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class PolicyCachesTest {
    private final List<NamespaceName> namespaces = new ArrayList<>();
    private final Set<NamespaceName> handedOver = new HashSet<>();
    private final Set<NamespaceName> withPolicies = new HashSet<>();
    private final Set<NamespaceName> broken = new HashSet<>();
    private final List<NamespaceName> read = new ArrayList<>();
    private final List<CompletableFuture<Boolean>> unanswered = new CopyOnWriteArrayList<>();
    private boolean isSlow;
    private final PolicyCaches caches = new PolicyCaches(new PolicyCaches.Pulsar() {
        @Override
        public CompletableFuture<List<NamespaceName>> namespaces() {
            return CompletableFuture.completedFuture(namespaces);
        }

        @Override
        public CompletableFuture<Boolean> isHandedOver(NamespaceName namespace) {
            if (!isSlow) {
                return CompletableFuture.completedFuture(handedOver.contains(namespace));
            }
            unanswered.add(new CompletableFuture<>());
            return unanswered.get(unanswered.size() - 1);
        }

        @Override
        public CompletableFuture<Boolean> hasPolicies(NamespaceName namespace) {
            return CompletableFuture.completedFuture(withPolicies.contains(namespace));
        }

        @Override
        public CompletableFuture<?> readPolicies(NamespaceName namespace) {
            read.add(namespace);
            return broken.contains(namespace)
                    ? CompletableFuture.failedFuture(new IOException("no bookie"))
                    : CompletableFuture.completedFuture(null);
        }
    });

    @Test
    void policiesAreReadOfNamespacesThatAreHandedOverAndHaveAny() {
        NamespaceName ours = handedOver("acme/ours");
        namespaces.add(NamespaceName.get("acme/by-bundle"));
        withPolicies.add(NamespaceName.get("acme/by-bundle"));
        withPolicies.remove(handedOver("acme/never-used"));

        caches.find();
        caches.keep();

        assertEquals(List.of(ours), read);
    }

    @Test
    void theyAreReadAgainAsPulsarMayHaveForgottenThem() {
        NamespaceName ours = handedOver("acme/ours");
        caches.find();
        caches.keep();
        caches.keep();

        assertEquals(List.of(ours, ours), read);
    }

    @Test
    void aNamespaceThatIsHandedOverLaterIsHeardOf() {
        caches.find();
        NamespaceName late = handedOver("acme/late");
        caches.accept(changed("/admin/policies/acme/late"));
        caches.accept(changed("/admin/policies/acme"));
        caches.accept(changed("/managed-ledgers/acme/late"));
        caches.keep();

        assertEquals(List.of(late), read);
    }

    @Test
    void aNamespaceThatIsHandedBackIsForgotten() {
        NamespaceName ours = handedOver("acme/ours");
        caches.find();
        handedOver.remove(ours);
        caches.accept(changed("/admin/policies/acme/ours"));
        caches.keep();

        assertEquals(List.of(), read);
    }

    @Test
    void oneThatCannotBeReadDoesNotKeepTheOthers() {
        for (String name : List.of("acme/a", "acme/b", "acme/c")) {
            broken.add(handedOver(name));
        }
        caches.find();
        caches.keep();

        assertEquals(broken, Set.copyOf(read));
    }

    @Test
    void atMostSoManyNamespacesAreReadAhead() {
        IntStream.range(0, PolicyCaches.NAMESPACES_MAX).forEach(each -> handedOver("acme/n" + each));
        caches.find();
        caches.keep();
        assertEquals(PolicyCaches.NAMESPACES_MAX, read.size());

        handedOver("acme/one-more");
        caches.accept(changed("/admin/policies/acme/one-more"));
        read.clear();
        caches.keep();
        assertEquals(PolicyCaches.NAMESPACES_MAX, read.size());
    }

    @Test
    @Timeout(30)
    void namespacesAreLookedAtSomeAtATime() throws Exception {
        isSlow = true;
        IntStream.range(0, PolicyCaches.LOOKED_AT_ONCE + 1).forEach(each -> handedOver("acme/n" + each));
        Thread finding = new Thread(caches::find);
        finding.start();
        waitBlocked(finding);
        assertEquals(PolicyCaches.LOOKED_AT_ONCE, unanswered.size());

        unanswered.forEach(each -> each.complete(true));
        while (unanswered.size() == PolicyCaches.LOOKED_AT_ONCE) {
            Thread.onSpinWait();
        }
        unanswered.get(PolicyCaches.LOOKED_AT_ONCE).complete(true);
        finding.join();
        caches.keep();
        assertEquals(Set.copyOf(namespaces), Set.copyOf(read));
    }

    private static void waitBlocked(Thread thread) {
        while (thread.getState() != Thread.State.TIMED_WAITING) {
            Thread.onSpinWait();
        }
    }

    private NamespaceName handedOver(String name) {
        NamespaceName namespace = NamespaceName.get(name);
        namespaces.add(namespace);
        handedOver.add(namespace);
        withPolicies.add(namespace);
        return namespace;
    }

    private static Notification changed(String path) {
        return new Notification(NotificationType.Modified, path);
    }
}
