"""The service of one replica; while it leads: joins, capacity, loads, leader spreading.
A ``leader_term`` decides from the events that it proposed itself or has seen committed.
``adapters`` and ``bootstrap`` call it, mostly through ``replica``.
"""
