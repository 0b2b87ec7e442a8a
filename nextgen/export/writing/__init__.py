"""A run of the exporter: it turns every shard's log into files and names them.

A run that was killed goes on where the manifest ends.
The command line calls it.
"""
