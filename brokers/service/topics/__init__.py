"""The open topics of a broker: the door to them, their ledgers, schemas, policies and upkeep.
Nothing is served that is not assigned here. Adapters and ``bootstrap`` call it.
"""
