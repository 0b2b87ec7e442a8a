package nextgen.pulsar.loadmanager;

import java.util.List;

/** What the sidecar tells the broker to do. Called by one thread, in the order of the messages. */
interface Orders {
    /**
     * A session of a node began, or the present one continues: topics of any other session are void.
     *
     * @throws StaleSession if a later session of that node was announced before
     */
    void session(String node, String sessionId, long epoch, long ttlMs);

    /** The session's manager was heard from. */
    void alive();

    /** A topic will be assigned to this broker soon, which another one still serves. */
    void prepare(String topic);

    /** This broker serves a topic, in an epoch. */
    void assign(String topic, long epoch);

    /** This broker serves a topic no more, up to an epoch. {@code urls}: its next broker, or "". */
    void release(String topic, long epoch, String urls);

    /** Answer which topics of a namespace are open here, and whose they are. */
    void listOpen(long number, String namespace);

    /** Close those of these topics that others own, send their clients there, and answer. */
    void closeForeign(long number, List<String> topics);
}
