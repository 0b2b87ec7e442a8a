"""Pulsar's schemas: a client's schema, compatibility by Avro's rules, and the strategies.
Pure. ``service.topics.schemas`` decides by it; connections and ``wire`` make its values.
"""
