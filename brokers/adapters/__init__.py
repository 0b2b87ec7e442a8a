"""Sockets, clocks and metrics of the broker agent."""
