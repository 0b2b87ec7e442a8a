package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class AssignmentsTest {
    private static final String TOPIC = "persistent://acme/orders/eu";
    private static final String NODE = "stock-1 of c";
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
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);
        assertTrue(assignments.owns(TOPIC));

        assertTrue(assignments.release(TOPIC, 5));
        assertFalse(assignments.owns(TOPIC));
    }

    @Test
    void aReleaseOfAnEarlierEpochTakesNothing() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 6);

        assertFalse(assignments.release(TOPIC, 5));
        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void anAssignmentOfAnEarlierEpochLowersNothing() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 6);
        assignments.assign(TOPIC, 5);

        assertFalse(assignments.release(TOPIC, 5));
    }

    @Test
    void nothingIsOwnedOnceTheTimeOutHasPassedWithoutNews() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);

        now.addAndGet(TTL_MS - 1);
        assertTrue(assignments.owns(TOPIC));
        now.addAndGet(1);
        assertFalse(assignments.owns(TOPIC));
        assertTrue(assignments.isOver());
    }

    @Test
    void newsOfTheManagerKeepTheSession() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);
        now.addAndGet(TTL_MS - 1);
        assignments.alive();
        now.addAndGet(TTL_MS - 1);

        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void aSessionThatGoesOnKeepsItsTopics() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);

        assertFalse(assignments.begin(NODE, "s-1", 1, TTL_MS));
        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void anotherSessionVoidsWhatTheFirstAssigned() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);

        assertTrue(assignments.begin(NODE, "s-2", 2, TTL_MS));
        assertFalse(assignments.owns(TOPIC));
        assertEquals(0, assignments.size());
    }

    @Test
    void anEndedSessionIsNotRevivedByLateNews() {
        assignments.begin(NODE, "s-1", 1, TTL_MS);
        assignments.assign(TOPIC, 5);
        assignments.end();
        assignments.alive();

        assertTrue(assignments.isOver());
        assertFalse(assignments.owns(TOPIC));
    }

    @Test
    void aSessionThatALaterOneReplacedIsRefusedAndChangesNothing() {
        assignments.begin(NODE, "s-2", 2, TTL_MS);
        assignments.assign(TOPIC, 5);

        assertThrows(StaleSession.class, () -> assignments.begin(NODE, "s-1", 1, TTL_MS));
        assertThrows(StaleSession.class, () -> assignments.begin(NODE, "s-3", 2, TTL_MS));
        assertTrue(assignments.owns(TOPIC));
    }

    @Test
    void aReplacedSessionIsRefusedAfterTheEndOfItsSuccessorToo() {
        assignments.begin(NODE, "s-2", 2, TTL_MS);
        assignments.end();

        assertThrows(StaleSession.class, () -> assignments.begin(NODE, "s-1", 1, TTL_MS));
        assertTrue(assignments.isOver());
    }

    @Test
    void theEpochsOfAnotherNodeAreOthers() {
        assignments.begin(NODE, "s-2", 2, TTL_MS);

        assertTrue(assignments.begin("stock-1 of another", "s-1", 1, TTL_MS));
    }
}
