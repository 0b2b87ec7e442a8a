"""What roles may do, by a table in memory that acknowledged watches keep true (ADR 0149).

Discovery and brokers make one ``PermissionTable`` per process; their ports ask it.
"""
