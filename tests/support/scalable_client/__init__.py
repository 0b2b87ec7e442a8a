"""Checks of the scalable-topics client that run on this project's servers and on a stock broker.

Each check gets a server that it may change, and a topic name of its own.
"""
