"""What discovery does for its callers, room by room, and what it counts and reports of itself.
It knows ports and rules, no socket. Adapters and ``bootstrap`` call it.
"""
