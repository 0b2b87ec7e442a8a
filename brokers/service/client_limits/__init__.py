"""Keeps clients to what they may use of a topic, a tenant's topics and this broker: rates and
numbers (ADR 0151, ADR 0152). ``topics``, ``producing`` and Pulsar connections call it.
"""
