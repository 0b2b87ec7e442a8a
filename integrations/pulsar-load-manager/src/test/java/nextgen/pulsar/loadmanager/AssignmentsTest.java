package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class AssignmentsTest {
    private static final String TOPIC = "persistent://acme/orders/eu";
    private static final long TTL_MS = 3_000;

    private final AtomicLong now = new AtomicLong(1_000);
    private final Assignments assignments = new Assignments(now::get);

    @Test
    void withoutASessionNothingIsOwned() {
        assignments.assign(TOPIC, 1);
        assignments.alive();

        assertFalse(assignments.owns(TOPIC));
    }

    @Test
    void anAssignedTopicIsOwnedUntilItIsReleased() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);
        assertTrue(assignments.owns(TOPIC));

        assertTrue(assignments.release(TOPIC, 5));
        assertFalse(assignments.owns(TOPIC));
    }

    @Test
    void aReleaseOfAnEarlierEpochTakesNothing() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 6);

        assertFalse(assignments.release(TOPIC, 5));
        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void anAssignmentOfAnEarlierEpochLowersNothing() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 6);
        assignments.assign(TOPIC, 5);

        assertFalse(assignments.release(TOPIC, 5));
    }

    @Test
    void nothingIsOwnedOnceTheTimeOutHasPassedWithoutNews() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);

        now.addAndGet(TTL_MS - 1);
        assertTrue(assignments.owns(TOPIC));
        now.addAndGet(1);
        assertFalse(assignments.owns(TOPIC));
        assertTrue(assignments.isOver());
    }

    @Test
    void newsOfTheManagerKeepTheSession() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);
        now.addAndGet(TTL_MS - 1);
        assignments.alive();
        now.addAndGet(TTL_MS - 1);

        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void aSessionThatGoesOnKeepsItsTopics() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);

        assertFalse(assignments.begin("s-1", TTL_MS));
        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void anotherSessionVoidsWhatTheFirstAssigned() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);

        assertTrue(assignments.begin("s-2", TTL_MS));
        assertFalse(assignments.owns(TOPIC));
        assertEquals(0, assignments.size());
    }

    @Test
    void anEndedSessionIsNotRevivedByLateNews() {
        assignments.begin("s-1", TTL_MS);
        assignments.assign(TOPIC, 5);
        assignments.end();
        assignments.alive();

        assertTrue(assignments.isOver());
        assertFalse(assignments.owns(TOPIC));
    }
}
