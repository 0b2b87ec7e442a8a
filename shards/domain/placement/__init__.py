"""Where a unit may be served, and which choice spreads load: capacity, rules, shares, rebalancing.

Pure; the assignment and moves rooms call it.
"""
