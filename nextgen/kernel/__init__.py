"""The functional core: names, events, limits and errors that every component shares.

It does no I/O and reads no clock; import-linter checks it.
Every package may import it; it imports nothing else of this project.
"""
