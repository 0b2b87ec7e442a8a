"""The broker's session: the agent that keeps it, what it reports, how the broker leaves.
``bootstrap`` starts it; adapters read what the agent holds.
"""
