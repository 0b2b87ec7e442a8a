package nextgen.pulsar.loadmanager;

import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.policies.data.loadbalancer.AdvertisedListener;

/**
 * Brokers that the cluster knows and that Pulsar's registry does not list here: one that has just
 * begun, whose registration comes later than its first topic.
 */
final class BrokersElsewhere {
    private BrokersElsewhere() {
    }

    /** Return what a client has to know of a broker by its addresses alone. */
    static BrokerLookupData at(ServiceUrls urls) {
        Map<String, AdvertisedListener> listeners = new HashMap<>();
        urls.listeners().forEach((name, each) -> listeners.put(name, AdvertisedListener.builder()
                .brokerServiceUrl(uri(each.plain())).brokerServiceUrlTls(uri(each.tls())).build()));
        return new BrokerLookupData(
                "", null, null, urls.plain(), urls.tls(), listeners, Map.of(), true, true,
                TopicLoadManager.class.getName(), 0L, "", Map.of());
    }

    private static URI uri(String url) {
        return url == null ? null : URI.create(url);
    }
}
