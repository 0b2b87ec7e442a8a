package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.apache.pulsar.broker.lookup.LookupResult;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.common.lookup.data.LookupData;
import org.junit.jupiter.api.Test;

/** What Pulsar answers to its clients for a broker that its registry does not list. */
class BrokersElsewhereTest {
    private static final String PLAIN = "pulsar://b9:6650";
    private static final String TLS = "pulsar+ssl://b9:6651";
    private static final String OUTSIDE = "pulsar+ssl://b9.example:443";

    @Test
    void aClientIsSentToItsAddresses() throws Exception {
        LookupData found = lookUp(PLAIN + "," + TLS, LookupOptions.builder().build());

        assertEquals(PLAIN, found.getBrokerUrl());
        assertEquals(TLS, found.getBrokerUrlTls());
    }

    @Test
    void aClientThatNamesAListenerIsSentToThatOne() throws Exception {
        LookupData found = lookUp(PLAIN + ";outside=" + OUTSIDE,
                LookupOptions.builder().advertisedListenerName("outside").build());

        assertNull(found.getBrokerUrl());
        assertEquals(OUTSIDE, found.getBrokerUrlTls());
    }

    private static LookupData lookUp(String urls, LookupOptions options) throws Exception {
        LookupResult result = BrokersElsewhere.at(ServiceUrls.parse(urls)).toLookupResult(options);
        return result.getLookupData();
    }
}
