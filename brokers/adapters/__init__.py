"""Adapters of a broker: clients, its broker manager, the disk, metrics.
Each adapter implements a port or calls the service. ``bootstrap`` alone wires them.
"""
