package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class TrafficTest {
    @Test
    void ratesAreWhatWasCountedInBetween() {
        Traffic before = new Traffic(10, 20, 100, 200);
        Traffic now = new Traffic(30, 20, 1_100, 200);

        assertEquals(new Traffic(4, 0, 200, 0), now.since(before, 5));
    }

    @Test
    void aTopicThatWasOpenedAnewCountsFromItsOpening() {
        Traffic before = new Traffic(1_000, 0, 9_000, 0);

        assertEquals(new Traffic(1, 0, 10, 0), new Traffic(5, 0, 50, 0).since(before, 5));
    }

    @Test
    void noRateIsBelowZero() {
        Traffic before = new Traffic(5, 5, 100, 100);

        assertEquals(Traffic.NONE, new Traffic(5, 5, 90, 90).since(before, 5));
    }
}
