"""Compares an export with its manifest and a live cluster, and says how far it has got.

A check changes nothing and does not disturb a run.
The command line calls it.
"""
