"""The broker's session: the agent that keeps it, its load reports, and the broker's departure.
``bootstrap`` starts it; adapters read the agent's holding.
"""
