"""Tenants, namespaces and topics out of one cluster and into another (ADR 0084).

A source (a Pulsar cluster's Admin REST, a cluster of this project, a file of lines) yields records,
parents first. The importer creates what is missing and leaves what exists.
"""
