"""The open topics of a broker: access to them, their ledgers, schemas, policies and upkeep.
Only units that are assigned here are served. Adapters and ``bootstrap`` call it.
"""
