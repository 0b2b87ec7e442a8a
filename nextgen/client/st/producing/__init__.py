"""Producers: messages into batches, and batches to the segments of a topic.

The order of messages is decided in ``domain.outbox``.
"""
