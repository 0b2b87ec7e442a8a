package nextgen.pulsar.loadmanager;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/**
 * The topics that one session of this broker may serve, each with the epoch of its assignment.
 *
 * <p>The sidecar keeps the session; this class only knows what it was told last, and until when that
 * holds. Without news for the session's time-out nothing is owned any more. The clock is in
 * milliseconds and never goes back.
 */
final class Assignments {
    private final LongSupplier clockMs;
    private final Map<String, Long> epochs = new ConcurrentHashMap<>();
    private String session = "";
    private String node = "";
    private long sessionEpoch;
    private long ttlMs;
    private volatile long validUntilMs = Long.MIN_VALUE;

    Assignments(LongSupplier clockMs) {
        this.clockMs = clockMs;
    }

    /**
     * Begin a session or continue it; return whether it is another one, so that all is void.
     *
     * <p>Epochs of sessions grow with each session of a node, so an earlier one than the latest that
     * was announced has been replaced. Another node's are others.
     *
     * @throws StaleSession if it has been replaced
     */
    synchronized boolean begin(String ofNode, String sessionId, long epoch, long sessionTtlMs) {
        boolean isAnother = !sessionId.equals(session);
        if (ofNode.equals(node) && (epoch < sessionEpoch || isAnother && epoch == sessionEpoch)) {
            throw new StaleSession("session " + sessionId + " of " + ofNode + " in epoch " + epoch
                    + " is over: epoch " + sessionEpoch + " has begun");
        }
        if (isAnother) {
            epochs.clear();
            session = sessionId;
        }
        node = ofNode;
        sessionEpoch = epoch;
        ttlMs = sessionTtlMs;
        validUntilMs = clockMs.getAsLong() + sessionTtlMs;
        return isAnother;
    }

    /** Note that the session's manager was heard from. */
    synchronized void alive() {
        if (!session.isEmpty()) {
            validUntilMs = clockMs.getAsLong() + ttlMs;
        }
    }

    /** End the session: nothing is owned until another one begins. */
    synchronized void end() {
        epochs.clear();
        session = "";
        validUntilMs = Long.MIN_VALUE;
    }

    void assign(String topic, long epoch) {
        epochs.merge(topic, epoch, Math::max);
    }

    /** Take a topic away, unless it was assigned again in a later epoch; return whether it is gone. */
    boolean release(String topic, long epoch) {
        return epochs.computeIfPresent(topic, (name, held) -> held > epoch ? held : null) == null;
    }

    /** Return the topics of the session, as they are while they are read. */
    Set<String> topics() {
        return epochs.keySet();
    }

    /** Return whether the session has ended by time. */
    boolean isOver() {
        return clockMs.getAsLong() >= validUntilMs;
    }

    /** Return whether this broker may serve a topic now. */
    boolean owns(String topic) {
        return epochs.containsKey(topic) && !isOver();
    }

    int size() {
        return epochs.size();
    }
}
