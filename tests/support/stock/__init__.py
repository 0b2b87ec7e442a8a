"""Unmodified Apache Pulsar brokers of one cluster, with the plug-in and its sidecars."""
