package nextgen.pulsar.loadmanager;

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
record ServiceUrls(String plain, String tls) {
    private static final String TLS = "pulsar+ssl://";

    /** Return the addresses for clients that name no listener; null where there is none. */
    static ServiceUrls parse(String text) {
        String plain = null;
        String tls = null;
        for (String url : text.split(";", 2)[0].split(",")) {
            if (url.startsWith(TLS)) {
                tls = url;
            } else if (!url.isEmpty()) {
                plain = url;
            }
        }
        return new ServiceUrls(plain, tls);
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
