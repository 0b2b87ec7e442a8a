"""Connections to the rest of the cluster: the other brokers, the broker manager and its stream.
It implements the ports of the session. ``bootstrap`` alone imports it.
"""
