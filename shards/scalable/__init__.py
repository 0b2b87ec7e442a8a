"""Scalable topics at work: what a layout's state says was begun is carried on here, by the leader.

Brokers of segments do what it asks, as often as it asks. For ``node``.
"""
