"""Pulsar's schemas: what a client states, compatibility by Avro's rules, and the strategies.
Pure. ``service.topics.schemas`` decides by it; connections and ``wire`` make its values.
"""
