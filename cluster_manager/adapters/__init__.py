"""Adapters of a replica: gRPC servers, the stored view, requests to shards for grants.
Each adapter implements a port or calls the service. ``bootstrap`` wires them.
"""
