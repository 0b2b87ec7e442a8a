"""How an aggregate turns commands into events, and which events a release knows.

An event that is in a log keeps its meaning in every later release.
Every package may import it; of the project it imports only ``nextgen.kernel.errors``.
"""
