"""Decides which part of a log is kept: named readers pin it. Also has the listeners that wait for
events.

The host and snapshot sender call it.
"""
