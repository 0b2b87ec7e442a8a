package nextgen.pulsar.loadmanager;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.policies.data.loadbalancer.AdvertisedListener;

/**
 * The addresses of a broker as one text, as the cluster has them.
 *
 * <pre>
 * pulsar://host:6650,pulsar+ssl://host:6651;internal=pulsar://10.0.0.7:6650;external=...
 * </pre>
 */
record ServiceUrls(String plain, String tls, Map<String, ServiceUrls> listeners) {
    private static final String TLS = "pulsar+ssl://";

    /** Return the addresses for clients that name no listener, and for each listener; null: none. */
    static ServiceUrls parse(String text) {
        String[] parts = text.split(";");
        Map<String, ServiceUrls> listeners = new TreeMap<>();
        for (String each : List.of(parts).subList(Math.min(1, parts.length), parts.length)) {
            int end = each.indexOf('=');
            if (end > 0) {
                listeners.put(each.substring(0, end), pair(each.substring(end + 1), Map.of()));
            }
        }
        return pair(parts.length == 0 ? "" : parts[0], listeners);
    }

    private static ServiceUrls pair(String text, Map<String, ServiceUrls> listeners) {
        String plain = null;
        String tls = null;
        for (String url : text.split(",")) {
            if (url.startsWith(TLS)) {
                tls = url;
            } else if (!url.isEmpty()) {
                plain = url;
            }
        }
        return new ServiceUrls(plain, tls, listeners);
    }

    /** Return the text of a stock broker's own addresses. */
    static String of(BrokerLookupData broker) {
        String own = joined(broker.pulsarServiceUrl(), broker.pulsarServiceUrlTls());
        StringBuilder text = new StringBuilder(own);
        for (Map.Entry<String, AdvertisedListener> each
                : new TreeMap<>(broker.advertisedListeners()).entrySet()) {
            String urls = joined(
                    each.getValue().getBrokerServiceUrl(), each.getValue().getBrokerServiceUrlTls());
            // Without listeners in its configuration a broker still has one, with the same addresses.
            if (broker.advertisedListeners().size() > 1 || !urls.equals(own)) {
                text.append(';').append(each.getKey()).append('=').append(urls);
            }
        }
        return text.toString();
    }

    /** Return whether clients may have named a listener whose addresses are not the broker's own. */
    static boolean hasListeners(BrokerLookupData broker) {
        return of(broker).indexOf(';') >= 0;
    }

    /** Return whether these are addresses of a stock broker. */
    boolean areOf(BrokerLookupData broker) {
        return plain != null && plain.equals(broker.pulsarServiceUrl())
                || tls != null && tls.equals(broker.pulsarServiceUrlTls());
    }

    /** Return one text for two URLs; null: there is none. */
    static String joined(Object plain, Object tls) {
        if (plain == null || tls == null) {
            return plain == null ? tls == null ? "" : tls.toString() : plain.toString();
        }
        return plain + "," + tls;
    }
}
