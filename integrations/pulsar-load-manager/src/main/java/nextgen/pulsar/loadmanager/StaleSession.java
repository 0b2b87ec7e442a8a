package nextgen.pulsar.loadmanager;

/** A sidecar announces a session that a later one of the same node has replaced. */
final class StaleSession extends RuntimeException {
    private static final long serialVersionUID = 1L;

    StaleSession(String message) {
        super(message);
    }
}
