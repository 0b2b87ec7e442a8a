"""Brokers, topics and subscriptions in one process, on storage that can be slow or full."""
