"""A run of the exporter: it writes every shard's log to files and adds them to the manifest.

A run after a kill continues where the manifest ends.
The command line calls it.
"""
