"""Consumers: what is subscribed on each segment, and messages to the application in one queue.

Which segments, and in which order, is decided in ``domain``.
"""
