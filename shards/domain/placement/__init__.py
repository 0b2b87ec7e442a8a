"""Placement of units: capacity, rules, tenants' shares, the choice of a broker, rebalancing.

Pure; the assignment and moves rooms call it.
"""
