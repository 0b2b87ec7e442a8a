"""Adapters of a node: its servers, the shards' change streams, its workers, its metrics.
Each adapter implements a port or calls the service. ``bootstrap`` wires them.
"""
