package nextgen.pulsar.loadmanager;

import java.util.Map;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;

/** Brokers that are not in Pulsar's own registry: embedded ones, side by side with stock ones. */
final class BrokersElsewhere {
    private BrokersElsewhere() {
    }

    /** Return what a client has to know of a broker that only the cluster knows. */
    static BrokerLookupData at(ServiceUrls urls) {
        return new BrokerLookupData(
                "", null, null, urls.plain(), urls.tls(), Map.of(), Map.of(), true, true,
                TopicLoadManager.class.getName(), 0L, "", Map.of());
    }
}
