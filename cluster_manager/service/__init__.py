"""What a replica does in its group and, while it leads: joins, capacity, loads, leader spreading.
One ``leader_term`` decides, and only on what it has proposed itself or seen committed.
``adapters`` and ``bootstrap`` call it, mostly by ``replica``.
"""
