"""Broker managers: the sessions of brokers, their loads, and the metadata that each was sent.

The node's dispatcher and the broker session service call it.
"""
