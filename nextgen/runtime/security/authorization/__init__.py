"""Whether a client may do what it asks for: one interface for every port (ADR 0149).

Ports call it, processes make it at start-up. Without an authorizer everybody may do everything.
"""
