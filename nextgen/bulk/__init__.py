"""Bulk loading: a folder of load files, and the loader that brings it to the shards of a map.

What a load that ended early has created stays; a second run goes on and is harmless.
The command line and the pipelines call it.
"""
