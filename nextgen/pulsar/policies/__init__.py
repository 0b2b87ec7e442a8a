"""Pulsar's policies of namespaces and topics: their types, their checks, and what they are here.

The Admin REST serves them, and the import of a Pulsar cluster reads them.
"""
