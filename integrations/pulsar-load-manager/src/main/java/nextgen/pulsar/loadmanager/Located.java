package nextgen.pulsar.loadmanager;

/** Where a topic is served. {@code urls} are as in {@link ServiceUrls}. */
record Located(String broker, long epoch, String urls) {
}
