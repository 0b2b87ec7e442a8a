package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.util.Map;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.policies.data.loadbalancer.AdvertisedListener;
import org.junit.jupiter.api.Test;

class ServiceUrlsTest {
    private static final String PLAIN = "pulsar://b1:6650";
    private static final String TLS = "pulsar+ssl://b1:6651";

    @Test
    void bothPortsAreRead() {
        assertEquals(urls(PLAIN, TLS), ServiceUrls.parse(PLAIN + "," + TLS));
        assertEquals(urls(PLAIN, null), ServiceUrls.parse(PLAIN));
        assertEquals(urls(null, TLS), ServiceUrls.parse(TLS));
        assertEquals(urls(null, null), ServiceUrls.parse(""));
    }

    @Test
    void listenersAreForThoseWhoNameThem() {
        ServiceUrls parsed = ServiceUrls.parse(
                PLAIN + ";external=" + TLS + ";internal=" + PLAIN + "," + TLS + ";nonsense");

        assertEquals(new ServiceUrls(PLAIN, null, Map.of(
                "external", urls(null, TLS), "internal", urls(PLAIN, TLS))), parsed);
    }

    @Test
    void aBrokersOwnAddressesHaveItsListeners() {
        Map<String, AdvertisedListener> listeners = Map.of(
                "internal", listener(PLAIN, null), "external", listener(null, TLS));

        assertEquals(PLAIN + ";external=" + TLS + ";internal=" + PLAIN,
                ServiceUrls.of(broker(PLAIN, null, listeners)));
        assertTrue(ServiceUrls.hasListeners(broker(PLAIN, null, listeners)));
    }

    @Test
    void theListenerOfABrokerWithoutListenersIsNoListener() {
        BrokerLookupData without = broker(PLAIN, null, Map.of("internal", listener(PLAIN, null)));

        assertEquals(PLAIN, ServiceUrls.of(without));
        assertFalse(ServiceUrls.hasListeners(without));
    }

    @Test
    void aBrokerIsFoundByEitherAddress() {
        assertTrue(ServiceUrls.parse(PLAIN).areOf(broker(PLAIN, TLS, Map.of())));
        assertTrue(ServiceUrls.parse(TLS).areOf(broker(PLAIN, TLS, Map.of())));
        assertFalse(ServiceUrls.parse("pulsar://b2:6650").areOf(broker(PLAIN, TLS, Map.of())));
        assertFalse(ServiceUrls.parse("").areOf(broker(null, null, Map.of())));
    }

    private static ServiceUrls urls(String plain, String tls) {
        return new ServiceUrls(plain, tls, Map.of());
    }

    private static AdvertisedListener listener(String plain, String tls) {
        return AdvertisedListener.builder()
                .brokerServiceUrl(plain == null ? null : URI.create(plain))
                .brokerServiceUrlTls(tls == null ? null : URI.create(tls)).build();
    }

    private static BrokerLookupData broker(
            String plain, String tls, Map<String, AdvertisedListener> listeners) {
        return new BrokerLookupData("b1:8080", null, null, plain, tls, listeners, Map.of(),
                true, true, "", 0L, "", Map.of());
    }
}
