"""Which part of a log may go: named readers that pin it, and listeners that wait for events.

The host and snapshot sender call it.
"""
