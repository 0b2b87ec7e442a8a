"""Three stock Apache Pulsar brokers that both place topics of: by topic, and by bundles."""
