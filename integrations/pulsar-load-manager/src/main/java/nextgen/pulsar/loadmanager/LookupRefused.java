package nextgen.pulsar.loadmanager;

/** The cluster has no broker for a topic. */
final class LookupRefused extends Exception {
    private static final long serialVersionUID = 1L;

    private final String code;
    private final boolean isFinal;

    LookupRefused(String code, String message, boolean isFinal) {
        super(code + ": " + message);
        this.code = code;
        this.isFinal = isFinal;
    }

    String code() {
        return code;
    }

    /** Whether asking again is of no use. */
    boolean isFinal() {
        return isFinal;
    }
}
